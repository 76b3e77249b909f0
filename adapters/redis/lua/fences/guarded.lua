-- Judges a claim and applies commands under it, in one step. Without commands it is an advance.
-- KEYS: the fence, then, unless this is a cluster, the record of the namespace, then those of the commands. The index
-- of the namespace, whose name follows from these, is used where a fence is written, and never in a cluster.
-- ARGV: the claim, the commands' layout, and their words, one command after another.
-- The claim is 'TOKEN HOLDER SEQUENCE ASKED JUMP': the sequence or '-'; 1 if an ASK redirected here; the greatest jump
-- (0: any). The layout is 'each' if each command stands for itself, or 'all', which are run up to the first that fails,
-- and then the number of each command's words, negative if it only reads.
-- Answers {verdict, highest, sequence on record or false, exact or false, and the reply to each command that was run}.
-- An admission that raised the fence has the word 'raised' for its verdict. The sequence is recorded if any of them wrote. exact: as run_commands() says.
--
-- Whatever can be refused (no memory, a replica, no permission) is refused before the first command has written: the
-- fence and the sequence are recorded first, and the sequence is taken back where nothing took effect. From then on
-- nothing is called that raises.

local token, holder, sequence, asked, jump = string.match(ARGV[1], '^(%d+) (%S*) (%S+) (%d) (%d+)$')
if not token then error({err = 'DAMAGED the claim of a guarded call'}) end
local fence_key, namespace_key = KEYS[1], not is_cluster and KEYS[2] or nil
local claim = {token = token, holder = holder, sequence = sequence ~= '-' and sequence}

local floor, namespace_highest = '0', nil
if namespace_key then floor, namespace_highest = read_namespace(namespace_key) end
local fence = read_fence(fence_key)
require_moved(fence, asked)
local verdict, highest = judge(fence, floor, claim)
if verdict ~= 'admitted' then return {verdict, highest, fence and fence.sequence or false, false} end

local before, word = false, verdict
if highest ~= claim.token then
  local objection = objection_to_jump(jump, claim.token, namespace_highest or (fence and highest))
  if objection then return objection end
  local index_key, resource
  if namespace_key then
    -- PREFIX and 'namespace'; PREFIX, '{', RESOURCE and '}'.
    local prefix_size = #namespace_key - #'namespace'
    index_key = string.sub(namespace_key, 1, prefix_size) .. 'resources'
    resource = string.sub(fence_key, prefix_size + 2, -2)
  end
  set_fence({fence_key, namespace_key, index_key}, resource, fence, claim)
  word = 'raised'
else
  before = fence.sequence
  if claim.sequence then redis.call('HSET', fence_key, 'sequence', claim.sequence) end
end

local answer = {word, claim.token, claim.sequence or before, false}
local took_effect, reads, exact = run_commands(answer)
if reads and not claim.sequence and highest == claim.token then refuse_replica(took_effect) end
if claim.sequence and not took_effect then
  redis.call('HSET', fence_key, 'sequence', before or '')
  answer[3] = before
end
answer[4] = exact
return answer
