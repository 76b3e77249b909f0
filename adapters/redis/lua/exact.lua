-- What a command answered, exact. Lua rounds integers above 2^53, so the few commands that answer with what they counted
-- are asked again, and answer as text: {'exact', digits}.

local counted_by = {INCR = 'GET', INCRBY = 'GET', DECR = 'GET', DECRBY = 'GET', HINCRBY = 'HGET'}

local function exact(reply, words, at)
  if type(reply) ~= 'number' or math.abs(reply) < 9007199254740992 then return reply end
  local reader = counted_by[string.upper(words[at])]
  if reader == 'GET' then return {'exact', redis.call('GET', words[at + 1])} end
  if reader == 'HGET' then return {'exact', redis.call('HGET', words[at + 1], words[at + 2])} end
  return reply
end
