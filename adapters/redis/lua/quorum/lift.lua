-- Lifts the counter, never lowers it. KEYS: marker, counter. ARGV: era, number. Answers {'confirmed'} or {'refused'}.

local era, counter = read_node(KEYS[1], KEYS[2])
if era ~= ARGV[1] then return {'refused'} end
if is_less(counter, ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return {'confirmed'}
