-- Makes the record of a namespace, or raises its floor; never lowers it. KEYS: the record. ARGV: the floor.
-- Answers the floor.

local fields = redis.call('HMGET', KEYS[1], 'floor', 'highest')
local floor = greater_of(fields[1] or '0', ARGV[1])
redis.call('HSET', KEYS[1], 'floor', floor, 'highest', greater_of(fields[2] or '0', floor))
return floor
