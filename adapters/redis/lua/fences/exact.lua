-- What a command answered, exact. Lua rounds integers above 2^53; the few commands that answer with what they counted
-- are asked again, as text. The digits, or nothing where the reply is exact as it is.

local function exact_digits(reply, words, at)
  if type(reply) ~= 'number' or (reply < 9007199254740992 and reply > -9007199254740992) then return nil end
  local name = string.upper(words[at])
  local digits
  -- The write is done, so nothing may be raised any more: a user without permission to read gets the rounded number.
  if name == 'HINCRBY' then
    digits = redis.pcall('HGET', words[at + 1], words[at + 2])
  elseif name == 'INCR' or name == 'INCRBY' or name == 'DECR' or name == 'DECRBY' then
    digits = redis.pcall('GET', words[at + 1])
  end
  return type(digits) == 'string' and digits or nil
end
