-- Writes a fence, its record in the index, and the highest token of the namespace: what every change of a fence that is
-- not a guarded write has in common. namespace and index are nil under Redis Cluster.

local function set_fence(fence_key, namespace_key, index_key, fence)
  redis.call('DEL', fence_key)
  redis.call('HSET', fence_key, 'token', fence.token, 'holder', fence.holder)
  if fence.sequence then redis.call('HSET', fence_key, 'sequence', fence.sequence) end
  if fence.closed then redis.call('HSET', fence_key, 'closed', '1') end
  if not namespace_key then return end
  redis.call('ZADD', index_key, 0, fence.resource)
  local highest = redis.call('HGET', namespace_key, 'highest')
  redis.call('HSET', namespace_key, 'highest', greater_of(highest, fence.token))
end

local function answer_fence(floor, fence)
  return {floor, fence.token, fence.holder, fence.sequence or false, fence.closed and 1 or 0}
end
