-- Sets a counter back by hand. KEYS: counter, the list of what was done by hand. ARGV: the number, operator.
-- Answers where it stood.

local value = require_number(KEYS[1], redis.call('HGET', KEYS[1], 'value'))
if not value or not is_less(ARGV[1], value) then
  return redis.error_reply('INVALID the counter stands at ' .. (value or 'nothing') .. ', which is not above ' .. ARGV[1])
end
note_by_hand(KEYS[2], value, ARGV[1], ARGV[2])
redis.call('HSET', KEYS[1], 'value', ARGV[1])
return value
