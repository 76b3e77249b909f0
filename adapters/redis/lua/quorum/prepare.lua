-- The state of a node, before its number is raised. One that has none becomes a candidate.
-- KEYS: marker, counter. ARGV: nonce.
-- Answers {'marked', era, counter, clock in microseconds} or {'unmarked', '', '0', clock in microseconds}.

local clock = redis.call('TIME')
clock = clock[1] .. string.format('%06d', clock[2])
local era, counter = read_node(KEYS[1], KEYS[2])
if era then return {'marked', era, counter, clock} end
redis.call('SET', KEYS[1], '?' .. ARGV[1])
return {'unmarked', '', '0', clock}
