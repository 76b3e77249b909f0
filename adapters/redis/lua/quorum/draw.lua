-- The next number, granted to no holder. KEYS: marker, counter. Answers {'granted', era, number} or {'unmarked'}.

local era = read_node(KEYS[1], KEYS[2])
if not era then return {'unmarked'} end
return {'granted', era, next_number(KEYS[2])}
