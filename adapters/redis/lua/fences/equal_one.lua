-- One command that writes, under a claim that equals its fence. ARGV: the claim, then the words of the command.
-- Answers the command's reply as it is, where that is a status, a text, a number or nil, and else in a table, so that
-- it is not taken for another answer: {reply}, or {reply, digits} where Lua rounded it.

if is_equal then
  local reply = redis.pcall(unpack(ARGV, 2))
  if type(reply) == 'table' then
    if reply.ok then return reply end
    return {reply}
  end
  local digits = exact_digits(reply, ARGV, 2)
  if digits then return {reply, digits} end
  return reply
end
table.insert(ARGV, 2, 'all ' .. #ARGV - 1)
