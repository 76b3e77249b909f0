-- Keeps the queue entries of these waiters, and looks whose turn it is. It gives no entry to those that have none: they
-- may have been granted the lock meanwhile. A waiter gets an entry by asking for the lock.
-- KEYS: lock, queue, waiters. ARGV: for how many ms they keep their entries, then the waiters.
-- Answers {'held', ms left (-1: for ever), 1 if it is a lock of ours, those without an entry}, or
-- {'free', ms for which the next one is believed to live, that one, those without an entry}.

local lost = {}
for i = 2, #ARGV do
  if not keep_place(KEYS[2], KEYS[3], ARGV[i], tonumber(ARGV[1])) then lost[#lost + 1] = ARGV[i] end
end
local value = redis.call('GET', KEYS[1])
if value then return {'held', redis.call('PTTL', KEYS[1]), parse_lock(value) and 1 or 0, lost} end
local first, left = first_in_line(KEYS[2], KEYS[3], tonumber(ARGV[1]))
return {'free', left or 0, first or '', lost}
