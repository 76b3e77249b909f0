-- A lease of at least this long: renewing never shortens.
-- KEYS: lock. ARGV: token, holder, time to live in ms. Answers 1, or 0 if the lock is not theirs.

local token, holder = parse_lock(redis.call('GET', KEYS[1]))
if token ~= ARGV[1] or holder ~= ARGV[2] then return 0 end
-- Written even where it changes nothing, so that WAIT after it speaks of the lease.
return redis.call('PEXPIRE', KEYS[1], string.format('%d', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))))
