-- Grants a lock together with its token, in one step.
-- KEYS: lock, counter. ARGV: holder, time to live in ms, 'enter' (another entry, which wants another release) or 'ask'.
-- Answers {'granted', token, ttl}, {'again', token, ttl}, or {'held', ms left (-1: for ever), 1 if it is a lock of ours}.

local lock, counter = KEYS[1], KEYS[2]
local holder, ttl = ARGV[1], ARGV[2]

local value = redis.call('GET', lock)
if not value then
  local token = draw(counter)
  redis.call('SET', lock, token .. ' ' .. holder .. ' 1', 'PX', ttl)
  return {'granted', token, ttl}
end

local token, present, entries = parse_lock(value)
local left = redis.call('PTTL', lock)
if not token or present ~= holder then return {'held', left, token and 1 or 0} end

if ARGV[3] == 'enter' then entries = string.format('%d', entries + 1) end
local longer = string.format('%d', math.max(left, tonumber(ttl)))
redis.call('SET', lock, token .. ' ' .. holder .. ' ' .. entries, 'PX', longer)
return {'again', token, longer}
