-- Folds those of some fences that are below a token into the floor, in one step with the floor. What is damaged stays.
-- KEYS: the record of the namespace, the floor for WATCH, the index, then the fences. ARGV: the token, then the fences' resources.
-- Answers {how many were dropped, floor}, and where a right is missing part of the way the refusal as well.

local before = read_namespace(KEYS[1])
local floor, below = before, {}
for i = 4, #KEYS do
  local token = redis.call('HGET', KEYS[i], 'token')
  if token and is_token(token) and is_less(token, ARGV[1]) then
    below[#below + 1] = i
    floor = greater_of(floor, token)
  end
end
if floor ~= before then redis.call('SET', KEYS[2], floor) end
redis.call('HSET', KEYS[1], 'floor', floor)
for dropped, i in ipairs(below) do
  local refusal = redis.pcall('ZREM', KEYS[3], ARGV[i - 2])
  if type(refusal) == 'number' then
    refusal = redis.pcall('DEL', KEYS[i])
    if type(refusal) ~= 'number' then redis.pcall('ZADD', KEYS[3], 0, ARGV[i - 2]) end
  end
  if type(refusal) ~= 'number' then return {dropped - 1, floor, refusal.err} end
end
return {#below, floor}
