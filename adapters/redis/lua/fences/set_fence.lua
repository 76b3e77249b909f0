-- Writes a fence: the last step of every change of one, and the only one that counts. What may be refused before it (a
-- right that the user lacks, an index of another type) has then changed nothing but the highest token, which only rises.
-- namespace_key is nil under Redis Cluster. before: the fence so far, or nothing. resource: its name in the index.

local function set_fence(keys, resource, before, fence)
  local fence_key, namespace_key, index_key = keys[1], keys[2], keys[3]
  if namespace_key then
    if not before then require_new(index_key, resource) end
    local highest = redis.call('HGET', namespace_key, 'highest')
    redis.call('HSET', namespace_key, 'highest', greater_of(highest, fence.token))
    redis.call('ZADD', index_key, 0, resource)
  end
  if before then redis.call('PERSIST', fence_key) end  -- a time to live that a client gave it
  local clears = before and (before.sequence or before.closed)
  if clears or fence.sequence or fence.closed then
    redis.call('HSET', fence_key, 'token', fence.token, 'holder', fence.holder, 'sequence', fence.sequence or '',
               'closed', fence.closed and '1' or '0')
  else
    redis.call('HSET', fence_key, 'token', fence.token, 'holder', fence.holder)
  end
end

-- Where a claim would raise a fence by more than jump ('0': any) above what was seen, the refusal. What was seen is the
-- highest token of the namespace, or under Redis Cluster the fence alone, if there is one.
local function objection_to_jump(jump, token, seen)
  if jump == '0' or not seen or not is_less(sum(seen, jump), token) then return nil end
  return redis.error_reply('IMPLAUSIBLE token ' .. token .. ' is more than ' .. jump .. ' above ' .. seen)
end

-- Told by an ASK to go elsewhere, a while ago: the fence may have been created where its slot still is.
local function require_moved(fence, is_asked)
  if not fence and is_asked == '1' then
    error({err = 'TRYAGAIN the slot is being moved, and no fence has come with it'})
  end
end

local function answer_fence(floor, fence)
  return {floor, fence.token, fence.holder, fence.sequence or false, fence.closed and 1 or 0}
end
