-- Renews a lease, by token and holder, and never shortens it.
-- KEYS: lock. ARGV: token, holder, time to live in ms. Answers {'confirmed'} or {'refused'}.

local number, holder = parse_hold(redis.call('GET', KEYS[1]))
if number ~= ARGV[1] or holder ~= ARGV[2] then return {'refused'} end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {'confirmed'}
