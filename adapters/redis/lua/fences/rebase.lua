-- Sets a fence by hand, closed, because the holder of that number is not known: the next higher one opens it. What was
-- there may be damaged, or gone.
-- KEYS: the fence, the list of what was set by hand, and, unless this is a cluster, record and index of the namespace.
-- ARGV: resource, token, operator. Answers as look.lua.

local floor = '0'
if KEYS[3] then floor = read_namespace(KEYS[3]) end
local before = {token = redis.call('HGET', KEYS[1], 'token') or '0'}
local note = {by = ARGV[3], resource = ARGV[1], from = before.token, to = ARGV[2], at = redis.call('TIME')[1]}
redis.call('RPUSH', KEYS[2], cjson.encode(note))
local fence = {token = ARGV[2], holder = '', closed = true}
set_fence({KEYS[1], KEYS[3], KEYS[4]}, ARGV[1], before, fence)
return answer_fence(floor, fence)
