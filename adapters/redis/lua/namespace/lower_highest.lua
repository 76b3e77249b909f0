-- Sets the highest token of a namespace after a fence was lowered by hand, unless it changed meanwhile.
-- KEYS: the record. ARGV: as it was, and what all fences were found to be below or at. Answers 1, or 0 if it changed.

local fields = redis.call('HMGET', KEYS[1], 'floor', 'highest')
if not fields[1] or fields[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'highest', greater_of(fields[1], ARGV[2]))
return 1
