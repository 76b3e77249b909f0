-- The counter of tokens: a hash with its value, and the run of the server that last drew from it.
--
-- A run is a server's replication id: it is new whenever a server started, and whenever a replica was promoted. Where
-- the present run is not the one that drew last, numbers that were drawn may be lost, so the counter first leaps.

local counter_max = '9223372036854775807'

-- Where there is no value any more (a restart without data, FLUSHALL): to the server's clock in microseconds, which is
-- above everything drawn before, since nobody draws a number each microsecond. Else by 2^32, which is more than what an
-- asynchronous replica lacks; but not past the clock while the value is near it, or the next one who finds no value
-- would start below. A counter far above the clock was raised, and leaps by 2^32 again.
local function leap(value)
  local time = redis.call('TIME')
  local clock = time[1] .. string.format('%06d', time[2])
  if not value then return clock end
  local far = sum(value, '4294967296')
  if not is_less(clock, far) or is_less(sum(clock, '4294967296'), value) then return far end
  return greater_of(clock, sum(value, '16384'))  -- no server starts twice within 16 ms
end

local function require_number(counter, value)
  if value and value ~= '0' and not string.match(value, '^[1-9]%d*$') then
    error({err = 'DAMAGED the counter ' .. counter .. ' holds no number'})
  end
  return value
end

-- Draws where the last draw was another run's, or nobody knows what it was.
local function draw_after_leap(counter, run, is_lost)
  local value = leap(not is_lost and require_number(counter, redis.call('HGET', counter, 'value')) or nil)
  if not is_less(value, counter_max) then
    error({err = 'EXHAUSTED the counter ' .. counter .. ' is at its end, there are no higher tokens'})
  end
  redis.call('HSET', counter, 'run', run, 'value', value)
  redis.call('HINCRBY', counter, 'value', 1)
  return redis.call('HGET', counter, 'value')
end

local function present_run()
  local replication = redis.call('INFO', 'replication')
  local _, before_run = string.find(replication, 'master_replid:', 1, true)
  if not before_run or not string.find(replication, 'role:master', 1, true) then
    error({err = 'REPLICA this server is a replica, and draws no tokens'})
  end
  return string.sub(replication, before_run + 1, before_run + 40)
end

-- The number, as a decimal string. Fails, with nothing done, where there are no numbers left.
local function draw(counter)
  local run = present_run()
  if redis.call('HGET', counter, 'run') ~= run then return draw_after_leap(counter, run) end
  local drawn = redis.pcall('HINCRBY', counter, 'value', 1)
  if type(drawn) ~= 'number' then
    if not string.find(drawn.err, 'integer', 1, true) and not string.find(drawn.err, 'overflow', 1, true) then
      error(drawn)
    end
    require_number(counter, redis.call('HGET', counter, 'value'))
    error({err = 'EXHAUSTED the counter ' .. counter .. ' is at its end, there are no higher tokens'})
  end
  if drawn <= 1 then return draw_after_leap(counter, run, true) end  -- somebody deleted the value
  if drawn < 9007199254740992 then return string.format('%.0f', drawn) end
  return redis.call('HGET', counter, 'value')
end
