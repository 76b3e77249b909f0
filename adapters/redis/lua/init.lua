-- Makes the record of a namespace, or raises its floor; never lowers it, but what is no number is replaced.
-- KEYS: the record. ARGV: the floor. Answers the floor.

local fields = redis.call('HMGET', KEYS[1], 'floor', 'highest')
for i = 1, 2 do
  if not fields[i] or not is_number(fields[i]) then fields[i] = '0' end
end
local floor = greater_of(fields[1], ARGV[1])
redis.call('HSET', KEYS[1], 'floor', floor, 'highest', greater_of(fields[2], floor))
return floor
