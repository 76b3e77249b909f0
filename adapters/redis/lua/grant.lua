-- Grants a lock together with its token, in one step.
-- KEYS: lock, counter. ARGV: holder, time to live in ms, 'enter' (another entry, which wants another release) or 'ask'.
-- Answers {'granted', token, ttl}, {'again', token, ttl}, or
-- {'held', ms left (-1: for ever), 1 if it is a lock of ours}.

local lock, holder = KEYS[1], ARGV[1]
local value = redis.call('GET', lock)
if not value then return take(lock, KEYS[2], holder, ARGV[2]) end
local token, present = parse_lock(value)
if token and present == holder then return take_again(lock, value, ARGV[2], ARGV[3]) end
return {'held', redis.call('PTTL', lock), token and 1 or 0}
