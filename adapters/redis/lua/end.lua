-- Frees a lock of ours, whoever holds it. KEYS: lock, and what free() wants.
-- ARGV: the channel on which a release is told. Answers 1, or 0 if there was none.

if not parse_lock(redis.call('GET', KEYS[1])) then return 0 end
free(KEYS[1], ARGV[1])
return 1
