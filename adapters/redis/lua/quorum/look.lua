-- The holder of a lock of ours. KEYS: lock. Answers {'held', '', number, ms left, holder} or, without one, {'refused'}.

local number, holder = parse_hold(redis.call('GET', KEYS[1]))
if not number then return {'refused'} end
return {'held', '', number, redis.call('PTTL', KEYS[1]), holder}
