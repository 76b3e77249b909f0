-- The fence of a resource, and the rule: the twin of judge() in guard/judge.hpp, held to it by the shared table of
-- cases. A fence is a hash: token, holder, sequence (absent or empty: none), closed ('1', else it is open). The record
-- of the namespace is a hash: floor, and highest, the highest token seen in it.

local number_max = '9223372036854775807'

local function is_token(text) return string.find(text, '^[1-9]%d*$') ~= nil and not is_less(number_max, text) end
local function is_number(text) return text == '0' or is_token(text) end

-- The record of a resource, or nothing. Fails, with nothing done, where it is not what we wrote.
local function read_fence(key)
  local fields = redis.call('HMGET', key, 'token', 'holder', 'sequence', 'closed')
  local token, holder, sequence = fields[1], fields[2], fields[3]
  if not token then
    if redis.call('EXISTS', key) == 1 then error({err = 'DAMAGED the fence ' .. key .. ' has no token'}) end
    return nil
  end
  if sequence == '' then sequence = false end
  if not is_token(token) or not holder or (sequence and not is_number(sequence)) then
    error({err = 'DAMAGED the fence ' .. key})
  end
  return {token = token, holder = holder, sequence = sequence, closed = fields[4] == '1'}
end

-- The floor of the namespace and the highest token seen in it. Fails where it was never initialised, or forgot it. A
-- version that changes what is kept writes both so that they are no numbers, and every older one refuses them.
local function read_namespace(key)
  local fields = redis.call('HMGET', key, 'floor', 'highest')
  if not fields[1] and not fields[2] then
    error({err = 'UNINITIALISED this Redis namespace is not initialised: claims are refused'})
  end
  if not fields[1] or not fields[2] or not is_number(fields[1]) or not is_number(fields[2]) then
    error({err = 'DAMAGED the record of the namespace ' .. key .. ': use a newer fenceguard if one wrote it'})
  end
  return fields[1], fields[2]
end

-- A resource without a fence that the index names had one: it was deleted by hand, or evicted.
local function require_new(index_key, resource)
  if redis.call('ZSCORE', index_key, resource) then
    error({err = 'DAMAGED the fence of ' .. resource .. ' is gone: set it again with fenceguard fence rebase'})
  end
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
