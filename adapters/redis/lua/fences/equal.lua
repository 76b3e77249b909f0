-- The rule for most writes, ahead of guarded.lua, which it saves the time to set up: true for a claim without a sequence
-- that equals an open fence, which is above the floor and has no sequence on record. Whatever else it finds is left to
-- guarded.lua, and nothing is done yet. Of the namespace's record it looks at the floor alone: a highest that is damaged
-- is seen by guarded.lua only.
-- KEYS and ARGV are those of guarded.lua.

local is_equal = false
do
  local fields = redis.call('HMGET', KEYS[1], 'token', 'holder', 'closed', 'sequence')
  local token, holder = fields[1], fields[2]
  -- The claim has five words and no space but between them. So what is on record can only be a beginning of it that
  -- ends in ' - ' if it is its first two words: the fourth is a digit.
  if token and holder and fields[3] ~= '1' and (not fields[4] or fields[4] == '') and
     string.find(ARGV[1], token .. ' ' .. holder .. ' - ', 1, true) == 1 then
    is_equal = is_cluster
    if not is_equal then
      local floor = redis.call('HGET', KEYS[2], 'floor')
      is_equal = floor == '0' or (floor and (#floor < #token or (#floor == #token and floor <= token)) and
                 string.find(floor, '^[1-9]%d*$'))
    end
  end
end
