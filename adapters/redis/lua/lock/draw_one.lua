-- KEYS: counter. Answers a number that is granted to no holder.

return draw(KEYS[1])
