-- Frees a lock of ours, whoever holds it. KEYS: lock. ARGV: the channel. Answers 1, or 0 if there was none.

if not parse_lock(redis.call('GET', KEYS[1])) then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[1], '')
return 1
