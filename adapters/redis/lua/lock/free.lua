-- Frees a lock and tells the waiters. A user without permission to publish frees it all the same: the waiters look
-- again by the clock.

local function free(lock, channel)
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', channel, '')
end
