-- Judges a claim and applies commands under it, in one step. Without commands it is an advance.
-- KEYS: the fence, then, unless this is a cluster, the record and the index of the namespace, then those of the commands.
-- ARGV: resource ('' under Redis Cluster, where there is no record of the namespace), token, holder, sequence ('': none),
-- the greatest jump ('0': any), the number of commands, then each: the number of its words, and its words.
-- Answers {verdict, highest, sequence on record or false, and the reply to each command that was run}. Commands are run
-- in their order up to the first that fails. The sequence is recorded if any of them took effect.

local fence_key, resource = KEYS[1], ARGV[1]
local claim = {token = ARGV[2], holder = ARGV[3], sequence = ARGV[4] ~= '' and ARGV[4] or nil}

local floor, namespace_highest = '0', nil
if resource ~= '' then floor, namespace_highest = read_namespace(KEYS[2]) end
local fence = read_fence(fence_key)
local verdict, highest = judge(fence, floor, claim)
if verdict ~= 'admitted' then return {verdict, highest, fence and fence.sequence or false} end

local sequence = fence and fence.sequence or false
if highest ~= claim.token then
  local known = namespace_highest or highest
  if ARGV[5] ~= '0' and is_less(sum(known, ARGV[5]), claim.token) then
    return redis.error_reply('IMPLAUSIBLE token ' .. claim.token .. ' is more than ' .. ARGV[5] .. ' above ' .. known)
  end
  redis.call('HSET', fence_key, 'token', claim.token, 'holder', claim.holder)
  if fence then redis.call('HDEL', fence_key, 'sequence', 'closed') end
  if namespace_highest then
    if is_less(namespace_highest, claim.token) then redis.call('HSET', KEYS[2], 'highest', claim.token) end
    if not fence then redis.call('ZADD', KEYS[3], 0, resource) end
  end
  highest, sequence = claim.token, false
end

local answer = {verdict, highest, sequence}
local at, took_effect = 7, false
for _ = 1, ARGV[6] do
  local last = at + ARGV[at]
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  answer[#answer + 1] = exact(reply, ARGV, at + 1)
  if type(reply) == 'table' and reply.err then break end
  took_effect = true
  at = last + 1
end
if took_effect and claim.sequence then
  redis.call('HSET', fence_key, 'sequence', claim.sequence)
  answer[3] = claim.sequence
end
return answer
