-- Frees a lock and tells those who wait. A user who may not publish frees it all the same:
-- they look again by the clock.

local function free(lock, channel)
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', channel, '')
end
