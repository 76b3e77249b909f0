-- Lifts a counter to a number, never lowers it. KEYS: counter, and by hand the list of what was.
-- ARGV: the number, how far it may be above the value ('0': any distance), and by hand the operator.

local value = require_number(KEYS[1], redis.call('HGET', KEYS[1], 'value'))
if value and ARGV[2] ~= '0' and is_less(sum(value, ARGV[2]), ARGV[1]) then
  return redis.error_reply('IMPLAUSIBLE the counter stands at ' .. value .. ', and ' .. ARGV[1] .. ' is more than ' .. ARGV[2] ..
                           ' above it: if a client made it up, set the fence back (fenceguard fence rebase); if it is ' ..
                           'right, fenceguard lease raise --far')
end
if KEYS[2] then note_by_hand(KEYS[2], value or '0', ARGV[1], ARGV[3]) end
if not value then
  -- One that was lost must not come back as one that is merely low.
  local run = present_run()
  redis.call('HSET', KEYS[1], 'run', run, 'value', greater_of(leap(nil), ARGV[1]))
elseif is_less(value, ARGV[1]) then
  redis.call('HSET', KEYS[1], 'value', ARGV[1])
end
return redis.status_reply('OK')
