-- Frees what an attempt was granted, unless it has become part of the lease that the attempt was granted in the end.
-- KEYS: lock. ARGV: holder, nonce, the lease's token, or '0' for none. Answers {'confirmed'} or {'refused'}.

local number, holder, nonce = parse_hold(redis.call('GET', KEYS[1]))
if not number or holder ~= ARGV[1] or nonce ~= ARGV[2] or number == ARGV[3] then return {'refused'} end
redis.call('DEL', KEYS[1])
return {'confirmed'}
