-- Round 1 where the node votes and the lock is free, ahead of ask.lua, which it saves the time to set up. Whatever else
-- it finds is left to ask.lua, and nothing is done yet. KEYS and ARGV are those of ask.lua.
-- Answers 'ERA NUMBER': granted.

do
  local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
  local era, last, value = seen[1], seen[2], seen[3]
  -- A candidate's marker begins with '?', and of up to 13 digits Lua writes every one.
  if era and last and not value and string.byte(era) ~= 63 and #last < 14 and string.find(last, '^%d+$') then
    local number = string.format('%d', redis.call('INCR', KEYS[2]))
    if redis.call('SET', KEYS[3], number .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[2]) then return era .. ' ' .. number end
    return {'held', era, '0', redis.call('PTTL', KEYS[3]), ''}
  end
end
