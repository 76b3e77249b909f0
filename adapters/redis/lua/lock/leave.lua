-- Gives up a queue entry, and calls the next waiter if it would have been its turn.
-- KEYS: lock, queue, waiters. ARGV: the waiter, the channel on which a release is told.

leave_line(KEYS[2], KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
  local first = first_in_line(KEYS[2], KEYS[3])
  if first then redis.pcall('PUBLISH', ARGV[2], first) end
end
return redis.status_reply('OK')
