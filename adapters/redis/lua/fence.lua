-- The fence of a resource, and the rule: the twin of judge() in guard/judge.hpp, held to it by the shared table of
-- cases. A fence is a hash: token, holder, sequence (absent: none), closed (absent: open). The record of the namespace
-- is a hash: floor, and highest, the highest token seen in it.

local function is_token(text) return string.match(text, '^[1-9]%d*$') end

-- The record of a resource, or nothing. Fails, with nothing done, where it is not what we wrote.
local function read_fence(key)
  local fields = redis.call('HMGET', key, 'token', 'holder', 'sequence', 'closed')
  if not fields[1] then
    if redis.call('EXISTS', key) == 1 then error({err = 'DAMAGED the fence ' .. key .. ' has no token'}) end
    return nil
  end
  if not is_token(fields[1]) or not fields[2] then error({err = 'DAMAGED the fence ' .. key}) end
  return {token = fields[1], holder = fields[2], sequence = fields[3], closed = fields[4] == '1'}
end

-- The floor of the namespace and the highest token seen in it. Fails where it was never initialised, or forgot it.
local function read_namespace(key)
  local fields = redis.call('HMGET', key, 'floor', 'highest')
  if not fields[1] or not fields[2] then
    error({err = 'UNINITIALISED this Redis namespace has no floor, and no state is not a licence'})
  end
  return fields[1], fields[2]
end

local function judge_equal(fence, claim)
  if fence.closed then return 'stale' end
  if fence.holder ~= claim.holder then return 'conflict' end
  if not claim.sequence or not fence.sequence or is_less(fence.sequence, claim.sequence) then return 'admitted' end
  if fence.sequence == claim.sequence then return 'duplicate' end
  return 'stale'
end

-- The verdict, and the highest token of the resource before the claim.
local function judge(fence, floor, claim)
  local fence_stands = fence and not is_less(fence.token, floor)
  local highest = fence_stands and fence.token or floor
  if fence_stands and fence.token == claim.token then return judge_equal(fence, claim), highest end
  if is_less(highest, claim.token) then return 'admitted', highest end
  return 'stale', highest
end
