-- The counter of tokens: a hash with its value, and the run of the server that last drew from it.
--
-- A run is a server's replication id: it is new whenever a server started, and whenever a replica was promoted. Where
-- the present run is not the one that drew last, numbers that were drawn may be lost, so the counter first leaps.

local counter_max = '9223372036854775807'

-- Where there is no value any more (a restart without data, FLUSHALL): to the server's clock in microseconds, which is
-- above everything drawn before, since clients do not draw a number each microsecond. Where there is one: to the clock
-- as well while that is less than 2^33 ahead, and else by 2^33 and an eighth of the rest. That is more than what was
-- lost, and never past the clock, or the next draw that finds no value would start below. And it is higher the later it
-- is: a leap may be lost together with what was drawn after it (a crash within a second of a restart, a promotion), and
-- a draw that then leaps from the same value must come out above. An eighth still rises faster than numbers are drawn,
-- and keeps what a guard elsewhere takes for plausible. A counter that was raised above the clock, or meets one that
-- lags, leaps by 2^32 and a part of the clock, so that a later leap is another one.
local function leap(value)
  local time = redis.call('TIME')
  local clock = time[1] .. string.format('%06d', time[2])
  if not value then return clock end
  if is_less(value, clock) then
    local ahead = tonumber(clock) - tonumber(value)
    if ahead < 8589934592 then return clock end
    return string.format('%.0f', tonumber(value) + 8589934592 + math.floor((ahead - 8589934592) / 8))
  end
  local is_far = is_less(sum(clock, '4294967296'), value)
  return sum(value, string.format('%.0f', 4294967296 + tonumber(clock) % (is_far and 549755813888 or 4294967296)))
end

local function require_number(counter, value)
  if value and value ~= '0' and not string.match(value, '^[1-9]%d*$') then
    error({err = 'DAMAGED the counter ' .. counter .. ' holds no number'})
  end
  return value
end

-- Draws where the last draw was another run's, or is not known.
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
  if drawn <= 1 then return draw_after_leap(counter, run, true) end  -- a client deleted the value
  if drawn < 9007199254740992 then return string.format('%.0f', drawn) end
  return redis.call('HGET', counter, 'value')
end
