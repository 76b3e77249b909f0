-- Lets the candidate vote, in this era and from this number on, if it has not forgotten that it is one.
-- KEYS: marker, counter. ARGV: nonce, era, number. Answers {'confirmed'} or {'refused'}.

if redis.call('GET', KEYS[1]) ~= '?' .. ARGV[1] then return {'refused'} end
redis.call('SET', KEYS[2], ARGV[3])
redis.call('SET', KEYS[1], ARGV[2])
return {'confirmed'}
