-- What a command answered, exact. Lua rounds integers above 2^53; the few commands that answer with what they counted
-- are asked again, as text. The digits, or nothing where the reply is exact as it is.

local counted_by = {INCR = 'GET', INCRBY = 'GET', DECR = 'GET', DECRBY = 'GET', HINCRBY = 'HGET'}

local function exact_digits(reply, words, at)
  if type(reply) ~= 'number' or math.abs(reply) < 9007199254740992 then return nil end
  local reader = counted_by[string.upper(words[at])]
  local digits
  -- The write is done, so nothing may be raised any more: a user who may not read gets the rounded number.
  if reader == 'GET' then digits = redis.pcall('GET', words[at + 1]) end
  if reader == 'HGET' then digits = redis.pcall('HGET', words[at + 1], words[at + 2]) end
  return type(digits) == 'string' and digits or nil
end
