-- Closes a fence, and cuts off with it a lease that has not advanced yet.
-- KEYS: the fence, and, unless this is a cluster, the record and the index of the namespace.
-- ARGV: resource, and the token and the holder of the present lease ('' and '' if there is none).
-- Answers as look.lua.

local floor = '0'
if KEYS[2] then floor = read_namespace(KEYS[2]) end
local fence = read_fence(KEYS[1])
local highest = greater_of(fence and fence.token or '0', floor)
if ARGV[2] ~= '' and is_less(highest, ARGV[2]) then
  fence = {token = ARGV[2], holder = ARGV[3]}
elseif not fence then
  return {floor}
end
fence.closed = true
fence.resource = ARGV[1]
set_fence(KEYS[1], KEYS[2], KEYS[3], fence)
return answer_fence(floor, fence)
