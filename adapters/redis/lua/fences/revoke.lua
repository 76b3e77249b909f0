-- Closes a fence, and cuts off with it a lease that has not advanced yet, unless its token is absurdly high.
-- KEYS: the fence, and, unless this is a cluster, the record and the index of the namespace.
-- ARGV: resource, token and holder of the present lease ('' and '' if there is none), the greatest jump ('0': any), '1'
-- if an ASK redirected here. Answers as look.lua.

local floor, namespace_highest = '0', nil
if KEYS[2] then floor, namespace_highest = read_namespace(KEYS[2]) end
local before = read_fence(KEYS[1])
require_moved(before, ARGV[5])
local highest = greater_of(before and before.token or '0', floor)
local fence = before
local is_above = ARGV[2] ~= '' and is_less(highest, ARGV[2])
if is_above and not objection_to_jump(ARGV[4], ARGV[2], namespace_highest or (before and highest)) then
  fence = {token = ARGV[2], holder = ARGV[3]}
elseif not before then
  return {floor}
end
fence.closed = true
set_fence(KEYS, ARGV[1], before, fence)
return answer_fence(floor, fence)
