-- Round 2: the hold becomes one with the token, and the counter at least that; only in the same era, and only if the
-- lock is still held under the very number that this node answered in round 1.
-- KEYS: marker, counter, lock. ARGV: era, number answered, holder, nonce, token. Answers {'confirmed'} or {'refused'}.

local era, counter = read_node(KEYS[1], KEYS[2])
local hold = ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
if era ~= ARGV[1] or redis.call('GET', KEYS[3]) ~= hold then return {'refused'} end
if is_less(counter, ARGV[5]) then redis.call('SET', KEYS[2], ARGV[5]) end
redis.call('SET', KEYS[3], ARGV[5] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4], 'KEEPTTL')
return {'confirmed'}
