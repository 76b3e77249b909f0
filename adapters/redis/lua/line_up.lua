-- Keeps the places of those who wait, and looks whose turn it is.
-- KEYS: lock, queue, waiters. ARGV: for how many ms they keep their places, then the waiters.
-- Answers {'held', ms left (-1: for ever), 1 if it is a lock of ours}, or {'free', ms, the waiter whose turn it is}, who
-- is believed to live for that long.

for i = 2, #ARGV do stay_in_line(KEYS[2], KEYS[3], ARGV[i], tonumber(ARGV[1])) end
local value = redis.call('GET', KEYS[1])
if value then return {'held', redis.call('PTTL', KEYS[1]), parse_lock(value) and 1 or 0} end
local first, left = first_in_line(KEYS[2], KEYS[3])
return {'free', left or 0, first or ''}
