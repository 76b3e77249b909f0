-- Taking a lock, for the first time or again.

-- In the same step as the grant, so that a search for live locks never misses one. key: nil for a lock that is found
-- without it.
local function register(key, pattern)
  if key then redis.call('SADD', key, pattern) end
end

local function take(lock, counter, holder, ttl)
  local token = draw(counter)
  redis.call('SET', lock, token .. ' ' .. holder .. ' 1', 'PX', ttl)
  return {'granted', token, ttl}
end

-- The same holder again: the same token, a lease of at least ttl, and with 'enter' another entry.
local function take_again(lock, value, ttl, mode)
  local token, holder, entries = parse_lock(value)
  if mode == 'enter' then entries = string.format('%d', entries + 1) end
  local longer = string.format('%d', math.max(redis.call('PTTL', lock), tonumber(ttl)))
  redis.call('SET', lock, token .. ' ' .. holder .. ' ' .. entries, 'PX', longer)
  return {'again', token, longer}
end
