-- As grant.lua, first come, first served: no client takes a free lock while a live waiter is before it.
-- KEYS: lock, counter, queue, waiters, and as for grant.lua the set of patterns. ARGV: holder, time to live in ms,
-- 'enter' or 'ask', the waiter ('': does not wait), for how many ms it keeps its entry, and the pattern.
-- Answers as grant.lua does.

local lock, queue, waiters = KEYS[1], KEYS[3], KEYS[4]
local holder, waiter = ARGV[1], ARGV[4]

local value = redis.call('GET', lock)
local token, present = parse_lock(value)
if token and present == holder then
  register(KEYS[5], ARGV[6])
  leave_line(queue, waiters, waiter)
  return take_again(lock, value, ARGV[2], ARGV[3])
end
local first, first_left = first_in_line(queue, waiters, tonumber(ARGV[5]))
if not value and (not first or first == waiter) then
  register(KEYS[5], ARGV[6])
  leave_line(queue, waiters, waiter)
  return take(lock, KEYS[2], holder, ARGV[2])
end
if waiter ~= '' then stay_in_line(queue, waiters, waiter, tonumber(ARGV[5])) end
if not value then return {'held', first_left, 1} end
return {'held', redis.call('PTTL', lock), token and 1 or 0}
