-- Judges a claim and applies commands under it, in one step. Without commands it is an advance.
-- KEYS: the fence, then, unless this is a cluster, record and index of the namespace, then those of the commands.
-- ARGV: resource ('' under Redis Cluster, where there is no record of the namespace), token, holder, sequence
-- ('': none), the greatest jump ('0': any), '1' if an ASK redirected here, then each command: the
-- number of its words, negative if it only reads, and its words.
-- Answers {verdict, highest, sequence on record or false, exact or false, and the reply to each command that was run}.
-- Commands are run in their order up to the first that fails. The sequence is recorded if any of them wrote. exact: the
-- replies that are beyond 2^53, as {place, digits, place, digits, ...}.
--
-- Whatever can be refused (no memory, a replica, no permission) is refused before the first command has written: the
-- fence and the sequence are recorded first, and the sequence is taken back where nothing took effect. From then on
-- nothing is called that raises.

local fence_key, resource = KEYS[1], ARGV[1]
local claim = {token = ARGV[2], holder = ARGV[3], sequence = ARGV[4] ~= '' and ARGV[4]}

local floor, namespace_highest = '0', nil
if resource ~= '' then floor, namespace_highest = read_namespace(KEYS[2]) end
local fence = read_fence(fence_key)
require_moved(fence, ARGV[6])
local verdict, highest = judge(fence, floor, claim)
if verdict ~= 'admitted' then return {verdict, highest, fence and fence.sequence or false, false} end

local writes = false
local at = 7
while ARGV[at] and not writes do
  local words = tonumber(ARGV[at])
  writes = words > 0
  at = at + math.abs(words) + 1
end

local before = false
if highest ~= claim.token then
  local objection = objection_to_jump(ARGV[5], claim.token, namespace_highest or (fence and highest))
  if objection then return objection end
  set_fence({fence_key, resource ~= '' and KEYS[2] or nil, KEYS[3]}, resource, fence, claim)
else
  before = fence.sequence
  if claim.sequence then
    redis.call('HSET', fence_key, 'sequence', claim.sequence)
  elseif not writes then
    -- Changes nothing, but is a write: a replica must not answer for its master.
    redis.call('PERSIST', fence_key)
  end
end

local answer = {verdict, claim.token, claim.sequence or before, false}
local exact, took_effect = nil, false
at = 7
while ARGV[at] do
  local words = tonumber(ARGV[at])
  local last = at + math.abs(words)
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  answer[#answer + 1] = reply
  if type(reply) == 'table' and reply.err then break end
  if words > 0 then took_effect = true end
  local digits = exact_digits(reply, ARGV, at + 1)
  if digits then
    exact = exact or {}
    exact[#exact + 1] = #answer - 4
    exact[#exact + 1] = digits
  end
  at = last + 1
end
if claim.sequence and not took_effect then
  redis.call('HSET', fence_key, 'sequence', before or '')
  answer[3] = before
end
answer[4] = exact or false
return answer
