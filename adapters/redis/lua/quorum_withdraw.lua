-- Frees what an attempt was granted. KEYS: lock. ARGV: holder, nonce. Answers {'confirmed'} or {'refused'}.

local number, holder, nonce = parse_hold(redis.call('GET', KEYS[1]))
if not number or holder ~= ARGV[1] or nonce ~= ARGV[2] then return {'refused'} end
redis.call('DEL', KEYS[1])
return {'confirmed'}
