-- Releases a lease. KEYS: lock. ARGV: 'TOKEN HOLDER ', with which the value of its hold begins.
-- Answers 1, or 0 if the lock is not theirs.

local value = redis.call('GET', KEYS[1])
if not value or string.find(value, ARGV[1], 1, true) ~= 1 then return 0 end
return redis.call('DEL', KEYS[1])
