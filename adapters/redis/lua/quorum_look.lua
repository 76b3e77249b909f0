-- Who holds a lock of ours; ends it if asked to. KEYS: lock. ARGV: 'end' or 'show'.
-- Answers {'held', '', number, ms left, holder}, or {'refused'} if there is none.

local number, holder = parse_hold(redis.call('GET', KEYS[1]))
if not number then return {'refused'} end
local left = redis.call('PTTL', KEYS[1])
if ARGV[1] == 'end' then redis.call('DEL', KEYS[1]) end
return {'held', '', number, left, holder}
