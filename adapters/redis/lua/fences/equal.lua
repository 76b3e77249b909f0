-- The way of most writes, ahead of guarded.lua, which it saves the time to set up: one command that writes, without a
-- sequence, whose claim equals an open fence that is above the floor and has no sequence on record. Whatever else it
-- finds is left to guarded.lua, and nothing is done yet. Of the namespace's record it looks at the floor alone: a
-- highest that is damaged is seen by guarded.lua only.
-- KEYS and ARGV are those of guarded.lua, but that the command comes without the number of its words.
-- Answers the command's reply as it is, where that is a status, a text, a number or nil, and else in a table, so that
-- it is not taken for another answer: {reply}, or {reply, digits} where Lua rounded it.

do
  local token = ARGV[1]
  local fields = redis.call('HMGET', KEYS[1], 'token', 'holder', 'closed', 'sequence')
  if fields[1] == token and fields[2] == ARGV[2] and fields[3] ~= '1' and (not fields[4] or fields[4] == '') then
    local is_above = is_cluster
    if not is_above then
      local floor = redis.call('HGET', KEYS[2], 'floor')
      is_above = floor == '0' or (floor and (#floor < #token or (#floor == #token and floor <= token)) and
                 string.find(floor, '^[1-9]%d*$'))
    end
    if is_above then
      local reply = redis.pcall(unpack(ARGV, 4))
      if type(reply) == 'table' then
        if reply.ok then return reply end
        return {reply}
      end
      local digits = exact_digits(reply, ARGV, 4)
      if digits then return {reply, digits} end
      return reply
    end
  end
  table.insert(ARGV, 4, #ARGV - 3)
end
