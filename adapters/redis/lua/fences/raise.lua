-- Lifts a counter to a number, never lowers it. KEYS: counter. ARGV: the number.

local value = require_number(KEYS[1], redis.call('HGET', KEYS[1], 'value'))
if not value then
  -- One that was lost must not come back as one that is merely low.
  local run = present_run()
  redis.call('HSET', KEYS[1], 'run', run, 'value', greater_of(leap(nil), ARGV[1]))
elseif is_less(value, ARGV[1]) then
  redis.call('HSET', KEYS[1], 'value', ARGV[1])
end
return redis.status_reply('OK')
