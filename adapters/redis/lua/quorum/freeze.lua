-- Leaves an era for the next: nothing begun in the old one is confirmed from now on.
-- KEYS: marker, counter. ARGV: era, next era. Answers {'confirmed', era, counter} or {'refused'}.

local era, counter = read_node(KEYS[1], KEYS[2])
if era ~= ARGV[1] then return {'refused'} end
redis.call('SET', KEYS[1], ARGV[2])
return {'confirmed', ARGV[2], counter}
