-- Any commands under a claim that equals its fence. KEYS and ARGV are those of guarded.lua.
-- Answers {exact or false, and the reply to each command that was run}: guarded.lua's answer begins with a text.

if is_equal then
  local answer = {false}
  local took_effect, reads, exact = run_commands(answer)
  if reads then refuse_replica(took_effect) end
  answer[1] = exact
  return answer
end
