-- Judges a claim and applies commands under it, in one step. Without commands it is an advance.
-- KEYS: the fence, then, unless this is a cluster, record and index of the namespace, then those of the commands.
-- ARGV: token, holder, terms, then each command: the number of its words, negative if it only reads, and its words.
-- The terms are 'ASKED EACH JUMP SEQUENCE RESOURCE': 1 if an ASK redirected here; 1 if each command stands for itself,
-- else they are run up to the first that fails; the greatest jump (0: any); the sequence or nothing; the resource, or
-- nothing under Redis Cluster.
-- Answers {verdict, highest, sequence on record or false, exact or false, and the reply to each command that was run}.
-- The sequence is recorded if any of them wrote. exact: the replies that are beyond 2^53, as {place, digits, place,
-- digits, ...}.
--
-- Whatever can be refused (no memory, a replica, no permission) is refused before the first command has written: the
-- fence and the sequence are recorded first, and the sequence is taken back where nothing took effect. From then on
-- nothing is called that raises.

local asked, each, jump, sequence, resource = string.match(ARGV[3], '^(%d) (%d) (%d+) (%d*) (.*)$')
if not asked then error({err = 'DAMAGED the terms of a guarded call'}) end
local fence_key = KEYS[1]
local claim = {token = ARGV[1], holder = ARGV[2], sequence = sequence ~= '' and sequence}

local floor, namespace_highest = '0', nil
if not is_cluster then floor, namespace_highest = read_namespace(KEYS[2]) end
local fence = read_fence(fence_key)
require_moved(fence, asked)
local verdict, highest = judge(fence, floor, claim)
if verdict ~= 'admitted' then return {verdict, highest, fence and fence.sequence or false, false} end

local before = false
if highest ~= claim.token then
  local objection = objection_to_jump(jump, claim.token, namespace_highest or (fence and highest))
  if objection then return objection end
  set_fence({fence_key, not is_cluster and KEYS[2] or nil, KEYS[3]}, resource, fence, claim)
else
  before = fence.sequence
  if claim.sequence then redis.call('HSET', fence_key, 'sequence', claim.sequence) end
end

local answer = {verdict, claim.token, claim.sequence or before, false}
local exact, took_effect, reads = nil, false, not ARGV[4]
local at = 4
while ARGV[at] do
  local words = tonumber(ARGV[at])
  local last = at + math.abs(words)
  reads = reads or words < 0
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  answer[#answer + 1] = reply
  if type(reply) == 'table' and reply.err then
    if each == '0' then break end
  else
    if words > 0 then took_effect = true end
    local digits = exact_digits(reply, ARGV, at + 1)
    if digits then
      exact = exact or {}
      exact[#exact + 1] = #answer - 4
      exact[#exact + 1] = digits
    end
  end
  at = last + 1
end
if reads and not claim.sequence and highest == claim.token then
  -- Changes nothing, but is a write: a replica must not answer for its master. It comes last, because the server asks
  -- no more whether there is memory once a script has written. After an effect it must not raise.
  local call = took_effect and redis.pcall or redis.call
  call('PERSIST', fence_key)
end
if claim.sequence and not took_effect then
  redis.call('HSET', fence_key, 'sequence', before or '')
  answer[3] = before
end
answer[4] = exact or false
return answer
