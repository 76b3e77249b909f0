-- The counter of tokens: a hash with its value, and the run of the server that last drew from it.
--
-- A run is a server's replication id: it is new whenever a server started, and whenever a replica was promoted. Where
-- the present run is not the one that drew last, numbers that were drawn may be lost, so the counter first leaps by
-- 2^32, and at least to the server's clock in microseconds: where the counter itself is lost (a restart without data,
-- FLUSHALL), what is drawn is still above everything drawn before, since nobody draws a number each microsecond.

-- The number, as a decimal string. Fails, with nothing done, where there are no numbers left.
local function draw(counter)
  local replication = redis.call('INFO', 'replication')
  local run = string.match(replication, 'master_replid:(%x+)')
  if not run or not string.find(replication, 'role:master', 1, true) then
    error({err = 'REPLICA this server is a replica, and draws no tokens'})
  end
  local seen = redis.call('HMGET', counter, 'value', 'run')
  if not seen[1] or seen[2] ~= run then
    redis.call('HINCRBY', counter, 'value', '4294967296')
    local clock = redis.call('TIME')
    local least = clock[1] .. string.format('%06d', clock[2])
    redis.call('HSET', counter, 'run', run, 'value', greater_of(redis.call('HGET', counter, 'value'), least))
  end
  local drawn = redis.call('HINCRBY', counter, 'value', 1)
  if drawn > 0 and drawn < 9007199254740992 then return string.format('%.0f', drawn) end
  drawn = redis.call('HGET', counter, 'value')
  if not string.match(drawn, '^[1-9]%d*$') then
    error({err = 'DAMAGED the counter ' .. counter .. ' holds ' .. drawn})
  end
  return drawn
end
