-- The way of most writes, ahead of the rest of guarded.lua, which it saves the time to set up: one command that writes,
-- without a sequence, whose claim equals an open fence that is above the floor. Whatever else it finds, damage too, is
-- left to guarded.lua, and nothing is done yet. Answers {the command's reply, sequence on record or false, digits}.

if ARGV[4] == '' and ARGV[7] and string.byte(ARGV[7]) ~= 45 and #ARGV == 7 + ARGV[7] then
  local token = ARGV[2]
  local fields = redis.call('HMGET', KEYS[1], 'token', 'holder', 'closed', 'sequence')
  if fields[1] == token and fields[2] == ARGV[3] and fields[3] ~= '1' then
    local sequence = fields[4]
    local is_sound = not sequence or sequence == '' or string.find(sequence, '^%d+$')
    local is_above = ARGV[1] == ''
    if not is_above then
      local floor = redis.call('HGET', KEYS[2], 'floor')
      is_above = floor == '0' or (floor and (#floor < #token or (#floor == #token and floor <= token)) and
                 string.find(floor, '^[1-9]%d*$'))
    end
    if is_sound and is_above then
      local reply = redis.pcall(unpack(ARGV, 8))
      return {reply, sequence, exact_digits(reply, ARGV, 8)}
    end
  end
end
