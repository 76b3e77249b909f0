-- Leaves a lock, and frees it with the last entry. KEYS: lock, and what free() wants.
-- ARGV: token, holder, the channel on which a release is told. Answers 1, or 0 if the lock is not theirs.

local value = redis.call('GET', KEYS[1])
if not value then return 0 end
if value ~= ARGV[1] .. ' ' .. ARGV[2] .. ' 1' then
  local token, holder, entries = parse_lock(value)
  if not token or token ~= ARGV[1] or holder ~= ARGV[2] then return 0 end
  redis.call('SET', KEYS[1], token .. ' ' .. holder .. ' ' .. string.format('%d', entries - 1), 'KEEPTTL')
  return 1
end
free(KEYS[1], ARGV[3])
return 1
