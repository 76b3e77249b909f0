-- KEYS: lock. ARGV: token, holder, time to live in ms. Answers 1, or 0 if the lock is not theirs.

local token, holder = parse_lock(redis.call('GET', KEYS[1]))
if token ~= ARGV[1] or holder ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
