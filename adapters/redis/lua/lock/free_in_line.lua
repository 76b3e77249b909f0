-- Frees a lock and tells whose turn it is. KEYS[2], KEYS[3]: queue, waiters.

local function free(lock, channel)
  local first = first_in_line(KEYS[2], KEYS[3])
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', channel, first or '')
end
