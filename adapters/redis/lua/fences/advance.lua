-- Judges a claim without commands, and raises the fence where the claim is newer.
-- KEYS: the fence, and, unless this is a cluster, the record and the index of the namespace.
-- ARGV: resource, token, holder, the greatest jump ('0': any), '1' if an ASK redirected here.
-- Answers {verdict, highest, 1 if the fence was raised, 1 if it is closed}, and of a fence that was raised {..., the
-- token and the holder that it had}.

local floor, namespace_highest = '0', nil
if KEYS[2] then floor, namespace_highest = read_namespace(KEYS[2]) end
local fence = read_fence(KEYS[1])
require_moved(fence, ARGV[5])
local claim = {token = ARGV[2], holder = ARGV[3]}
local verdict, highest = judge(fence, floor, claim)
if verdict ~= 'admitted' then return {verdict, highest, 0, fence and fence.closed and 1 or 0} end
if highest == claim.token then
  -- Changes nothing, but is a write: a replica must not answer for its master.
  redis.call('PERSIST', KEYS[1])
  return {verdict, highest, 0, 0}
end
local objection = objection_to_jump(ARGV[4], claim.token, namespace_highest or (fence and highest))
if objection then return objection end
set_fence(KEYS, ARGV[1], fence, claim)
if not fence then return {verdict, claim.token, 1, 0} end
return {verdict, claim.token, 1, 0, fence.token, fence.holder}
