-- Round 1: the lock with the next number, if it is free.
-- KEYS: marker, counter, lock. ARGV: 'HOLDER NONCE', time to live in ms.
-- Answers {'granted', era, number}, {'mine', era, number, ms left}, {'held', era, number, ms left, holder} ('0' and no
-- holder for what is no lock of ours), or {'unmarked'}.

local era, _, value = read_node(KEYS[1], KEYS[2], KEYS[3])
if not era then return {'unmarked'} end
if not value then
  local number = next_number(KEYS[2])
  local hold = number .. ' ' .. ARGV[1]
  if redis.call('SET', KEYS[3], hold, 'NX', 'PX', ARGV[2]) then return {'granted', era, number} end
end
local number, holder, nonce = parse_hold(value)
local own_holder, own_nonce = string.match(ARGV[1], '^(%S*) (%S+)$')
local left = redis.call('PTTL', KEYS[3])
if not number then return {'held', era, '0', left, ''} end
if holder ~= own_holder then return {'held', era, number, left, holder} end
return {nonce == own_nonce and 'granted' or 'mine', era, number, left}
