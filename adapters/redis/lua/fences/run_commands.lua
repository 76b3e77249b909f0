-- Runs the commands, up to the first that fails unless each stands for itself, and appends their replies to the answer.
-- Answers whether any took effect; whether any only reads, or there is none; and the replies that are beyond 2^53, as
-- {place, digits, place, digits, ...}, or false. Nothing raises.

local function run_commands(answer)
  local before, at = #answer, 3
  local took_effect, reads, exact = false, not ARGV[3], false
  local is_each = string.byte(ARGV[2]) == 101
  for text in string.gmatch(ARGV[2], '%-?%d+') do
    local words = tonumber(text)
    local last = at + math.abs(words) - 1
    reads = reads or words < 0
    local reply = redis.pcall(unpack(ARGV, at, last))
    answer[#answer + 1] = reply
    if type(reply) == 'table' and reply.err then
      if not is_each then break end
    else
      if words > 0 then took_effect = true end
      local digits = exact_digits(reply, ARGV, at)
      if digits then
        exact = exact or {}
        exact[#exact + 1] = #answer - before
        exact[#exact + 1] = digits
      end
    end
    at = last + 1
  end
  return took_effect, reads, exact
end

-- Changes nothing, but is a write: a replica must not answer for its master. It comes last, because the server asks no
-- more whether there is memory once a script has written. After an effect it must not raise.
local function refuse_replica(took_effect)
  local call = took_effect and redis.pcall or redis.call
  call('PERSIST', KEYS[1])
end
