-- Renews or releases a lease, by token and holder. Renewing never shortens.
-- KEYS: lock. ARGV: token, holder, time to live in ms, or '0' to release. Answers {'confirmed'} or {'refused'}.

local number, holder = parse_hold(redis.call('GET', KEYS[1]))
if number ~= ARGV[1] or holder ~= ARGV[2] then return {'refused'} end
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
elseif redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return {'confirmed'}
