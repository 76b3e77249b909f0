-- Grants a lock together with its token, in one step.
-- KEYS: lock, counter, and where the lock is not at our own key the set of registered patterns.
-- ARGV: holder, time to live in ms, 'enter' (another entry, which wants another release) or 'ask', and the pattern.
-- Answers {'granted', token, ttl}, {'again', token, ttl}, or
-- {'held', ms left (-1: for ever), 1 if it is a lock of ours}.

local lock, holder = KEYS[1], ARGV[1]
local value = redis.call('GET', lock)
local token, present = parse_lock(value)
if value and present ~= holder then return {'held', redis.call('PTTL', lock), token and 1 or 0} end
register(KEYS[3], ARGV[4])
if not value then return take(lock, KEYS[2], holder, ARGV[2]) end
return take_again(lock, value, ARGV[2], ARGV[3])
