-- A lease of at least this long: renewing never shortens.
-- KEYS: lock, and where it is not at our own key the set of registered patterns.
-- ARGV: token, holder, time to live in ms, and the pattern. Answers 1, or 0 if the lock is not theirs.

local token, holder = parse_lock(redis.call('GET', KEYS[1]))
if token ~= ARGV[1] or holder ~= ARGV[2] then return 0 end
-- An older version may have granted it without. Where that is refused the lease is renewed all the same.
if KEYS[2] then redis.pcall('SADD', KEYS[2], ARGV[4]) end
-- Written even where it changes nothing, so that WAIT after it speaks of the lease.
return redis.call('PEXPIRE', KEYS[1], string.format('%d', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))))
