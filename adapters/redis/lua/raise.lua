-- Lifts a counter to a number, never lowers it. KEYS: counter. ARGV: the number.

local value = redis.call('HGET', KEYS[1], 'value')
if not value or is_less(value, ARGV[1]) then redis.call('HSET', KEYS[1], 'value', ARGV[1]) end
return redis.status_reply('OK')
