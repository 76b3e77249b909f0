-- KEYS: counter. Answers a number that nobody is granted.

return draw(KEYS[1])
