-- The holder asks again: its lease under a new nonce, with at least this time to live.
-- KEYS: marker, counter, lock. ARGV: era, number, holder, nonce, time to live in ms.
-- Answers {'confirmed'} or {'refused'}.

local era = read_node(KEYS[1], KEYS[2])
local number, holder = parse_hold(redis.call('GET', KEYS[3]))
if era ~= ARGV[1] or number ~= ARGV[2] or holder ~= ARGV[3] then return {'refused'} end
local left = math.max(redis.call('PTTL', KEYS[3]), tonumber(ARGV[5]))
redis.call('SET', KEYS[3], number .. ' ' .. holder .. ' ' .. ARGV[4], 'PX', string.format('%d', left))
return {'confirmed'}
