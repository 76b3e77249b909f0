-- The fence of a resource, and the floor. KEYS: the fence, and, unless this is a cluster, the record of the namespace.
-- Answers {floor}, or {floor, token, holder, sequence or false, 1 if it is closed}.

local floor = '0'
if KEYS[2] then floor = read_namespace(KEYS[2]) end
local fence = read_fence(KEYS[1])
if not fence then return {floor} end
return {floor, fence.token, fence.holder, fence.sequence or false, fence.closed and 1 or 0}
