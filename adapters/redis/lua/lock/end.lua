-- Frees a lease, however often its holder has entered. KEYS: lock, and what free() wants.
-- ARGV: token, holder, the channel on which a release is told. Answers 1, or 0 if the lock is not theirs.

local token, holder = parse_lock(redis.call('GET', KEYS[1]))
if token ~= ARGV[1] or holder ~= ARGV[2] then return 0 end
free(KEYS[1], ARGV[3])
return 1
