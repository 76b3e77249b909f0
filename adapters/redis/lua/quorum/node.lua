-- What the scripts of a quorum's node share. A node has a marker, the word of its era, or '?' and a nonce while it is
-- a candidate, and a counter. A lock is a string: 'NUMBER HOLDER NONCE'.

local function parse_hold(value)
  if not value then return nil end
  return string.match(value, '^([1-9]%d*) (%S*) (%S+)$')
end

-- The era and the counter of a node that votes, and the lock, which is nothing also where it is no string; or nothing.
local function read_node(marker, counter, lock)
  local seen = redis.call('MGET', marker, counter, lock or marker)
  if not seen[1] or not seen[2] or string.sub(seen[1], 1, 1) == '?' then return nil end
  if not string.match(seen[2], '^%d+$') then error({err = 'DAMAGED the counter ' .. counter .. ' is no number'}) end
  return seen[1], seen[2], seen[3]
end

local function next_number(counter)
  local number = redis.call('INCR', counter)
  if number < 9007199254740992 then return string.format('%.0f', number) end
  return redis.call('GET', counter)
end
