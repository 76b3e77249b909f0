-- Makes the record of a namespace, or raises its floor; never lowers it. Of a damaged record what is still a number
-- counts, and the highest token seen stands for a floor that is none, and for a lower one where fences may be gone
-- (eviction.lua): with a floor above all that was admitted it does not matter which, and what was noted is over, unless the
-- policy still evicts.
-- KEYS: the record, and the floor for WATCH. ARGV: the floor. Answers the floor.

local fields = redis.call('HMGET', KEYS[1], 'floor', 'highest')
local floor = fields[1] and is_number(fields[1]) and fields[1]
local highest = fields[2] and is_number(fields[2]) and fields[2]
if (fields[1] or fields[2]) and not floor and not highest then
  return redis.error_reply('DAMAGED the record of the namespace ' .. KEYS[1] ..
                           ': use a newer fenceguard if one wrote it; if not, delete it if you know the floor')
end
local noted = noted_in(KEYS[1])
if noted then floor = greater_of(floor or '0', highest or '0') end
floor = greater_of(floor or highest or '0', ARGV[1])
redis.call('SET', KEYS[2], floor)
redis.call('HSET', KEYS[1], 'floor', floor, 'highest', greater_of(highest or '0', floor))
if noted and not may_evict() then redis.call('HSET', KEYS[1], 'evicting', '') end
return floor
