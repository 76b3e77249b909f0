-- Of init.lua and eviction.lua: what is noted of evictions in a record, and whether the present policy may evict fences.

-- What INFO says of a section; empty where this user may not ask.
local function info(section)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and text or ''
end

-- False where nothing is.
local function noted_in(record)
  local noted = redis.call('HGET', record, 'evicting')
  return noted ~= '' and noted
end

-- Nil where INFO does not tell.
local function may_evict()
  local policy = string.match(info('memory'), 'maxmemory_policy:(%S+)')
  return policy and string.sub(policy, 1, 8) == 'allkeys-'
end
