-- The wait queue: a sorted set of waiters by their arrival, and one of until when each is believed to live, in ms of
-- the server's clock, which decides about waiting alone. Both are gone when no client waits any more.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The first live waiter, and for how many ms it is believed to live. The dead before it are dropped. With life, no
-- entry is kept for longer than that without a look, even if the clock went backwards since the last one.
local function first_in_line(queue, waiters, life)
  local now = now_ms()
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then return nil end
    local lives_until = tonumber(redis.call('ZSCORE', waiters, first) or 0)
    if life and lives_until > now + life then
      lives_until = now + life
      redis.call('ZADD', waiters, string.format('%.0f', lives_until), first)
    end
    if lives_until > now then return first, lives_until - now end
    redis.call('ZREM', queue, first)
    redis.call('ZREM', waiters, first)
  end
end

-- Keeps the waiter's entry for life ms. False if it has none.
local function keep_place(queue, waiters, waiter, life)
  if not redis.call('ZSCORE', queue, waiter) then return false end
  redis.call('ZADD', waiters, string.format('%.0f', now_ms() + life), waiter)
  redis.call('PEXPIRE', queue, 2 * life)
  redis.call('PEXPIRE', waiters, 2 * life)
  return true
end

-- The same, and enqueues the waiter if it has no entry.
local function stay_in_line(queue, waiters, waiter, life)
  if keep_place(queue, waiters, waiter, life) then return end
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', queue, string.format('%.0f', (last or 0) + 1), waiter)
  keep_place(queue, waiters, waiter, life)
end

local function leave_line(queue, waiters, waiter)
  redis.call('ZREM', queue, waiter)
  redis.call('ZREM', waiters, waiter)
end
