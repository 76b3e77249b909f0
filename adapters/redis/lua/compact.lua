-- Folds those of some fences that are below a token into the floor, in one step with the floor. What is damaged stays.
-- KEYS: the record and the index of the namespace, then the fences. ARGV: the token, then the fences' resources.
-- Answers {how many were dropped, floor}.

local floor = read_namespace(KEYS[1])
local below = {}
for i = 3, #KEYS do
  local token = redis.call('HGET', KEYS[i], 'token')
  if token and is_token(token) and is_less(token, ARGV[1]) then
    below[#below + 1] = i
    floor = greater_of(floor, token)
  end
end
redis.call('HSET', KEYS[1], 'floor', floor)
for _, i in ipairs(below) do
  redis.call('ZREM', KEYS[2], ARGV[i - 1])
  redis.call('DEL', KEYS[i])
end
return {#below, floor}
