-- KEYS: lock. Answers {token, holder, ms left}, or nothing if there is no lock of ours.

local token, holder = parse_lock(redis.call('GET', KEYS[1]))
if not token then return false end
return {token, holder, redis.call('PTTL', KEYS[1])}
