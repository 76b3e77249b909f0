-- What the library of functions registers; its bodies are the scripts. Every function takes keys of one resource, which
-- is their hash tag, or all of the key where it has none; the fence is found from it, under the prefix 'fenceguard:'. In
-- a cluster the fence's key, fenceguard:{RESOURCE}, is named before them; elsewhere it may be.
--
--   fenceguard_write    KEYS: those of the command. ARGV: token, holder, sequence or '-', and the command's words.
--                       Answers {verdict, highest, sequence on record or nil, and, if it was run, the command's reply}.
--   fenceguard_advance  KEYS: any of the resource. ARGV: token, holder. Answers {verdict, highest}.
--   fenceguard_show     KEYS: any of the resource. Answers {floor}, or {floor, token, sequence or nil, 1 if closed}.
--   fenceguard_version  Answers the version of the program that printed this.
--
-- Errors leave everything as it was: INVALID for arguments that are wrong or a command that cannot be guarded, and those
-- of the scripts (UNINITIALISED, DAMAGED, IMPLAUSIBLE).

local jump_max = '1099511627776'  -- a claim may raise a fence by 2^40 above what was seen, as at a guard

local function fail(sentence) error({err = 'INVALID ' .. sentence}) end

-- By position: where a command's keys are. 'one': the first word behind its name; 'all': every word; 'pairs': every other
-- word; 'two': the first two. What is not here is refused: its keys are told by more than their place, or it has none.
-- Made at the first call: while a library is loaded there is no string.find.
local known_places
local function places()
  if known_places then return known_places end
  local made = {}
  local function put(place, writes, names)
    for name in string.gmatch(names, '%S+') do made[name] = {place = place, writes = writes} end
  end
  put('one', true, [[SET SETNX SETEX PSETEX GETSET GETDEL GETEX APPEND SETRANGE SETBIT BITFIELD INCR INCRBY INCRBYFLOAT
    DECR DECRBY EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST HSET HSETNX HMSET HDEL HINCRBY HINCRBYFLOAT LPUSH RPUSH LPUSHX
    RPUSHX LPOP RPOP LSET LREM LTRIM LINSERT SADD SREM SPOP ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX ZREMRANGEBYSCORE
    ZREMRANGEBYRANK ZREMRANGEBYLEX XADD XDEL XTRIM XACK PFADD GEOADD RESTORE]])
  put('all', true, 'DEL UNLINK')
  put('pairs', true, 'MSET MSETNX')
  put('two', true, 'RENAME RENAMENX SMOVE RPOPLPUSH LMOVE')
  put('one', false, [[GET STRLEN GETRANGE GETBIT BITCOUNT TTL PTTL TYPE HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN
    LLEN LRANGE LINDEX SMEMBERS SISMEMBER SMISMEMBER SCARD ZSCORE ZMSCORE ZCARD ZRANGE ZRANK ZREVRANK ZCOUNT XLEN XRANGE
    XREVRANGE]])
  put('all', false, 'EXISTS MGET')
  known_places = made
  return made
end

-- Whether this is a cluster, where the record of the namespace lies in another slot than the fence. It stays so while a
-- server runs.
local known_as_cluster
local function is_cluster()
  if known_as_cluster == nil then
    known_as_cluster = string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:1', 1, true) ~= nil
  end
  return known_as_cluster
end

local prefix = 'fenceguard:'
local function is_ours(key) return string.sub(key, 1, #prefix) == prefix end
local function fence_key_of(resource) return prefix .. '{' .. resource .. '}' end

local function resource_of(key)
  if is_ours(key) then fail('the key ' .. key .. ' is fenceguard\'s own') end
  local tag = string.match(key, '{([^}]*)}')
  local resource = tag and tag ~= '' and tag or key
  local padded = '/' .. resource .. '/'
  if #resource == 0 or #resource > 512 or string.find(resource, '[^ -~]') or string.find(padded, '//', 1, true) or
     string.find(padded, '/./', 1, true) or string.find(padded, '/../', 1, true) then
    fail('a resource is 1 to 512 printable ASCII characters here, without empty segments and dot segments')
  end
  return resource
end

-- The resource, and the keys of the data. In a cluster the fence's own key comes first: only a call that names it, and
-- another, is turned away while its slot is moved and the fence may still be where it was.
local function read_keys(keys)
  local names_fence = keys[1] ~= nil and is_ours(keys[1])
  local data = {}
  for at = names_fence and 2 or 1, #keys do data[#data + 1] = keys[at] end
  if #data == 0 then fail('name a key of the resource') end
  local resource = resource_of(data[1])
  for _, key in ipairs(data) do
    if resource_of(key) ~= resource then fail('the keys belong to more than one resource') end
  end
  local fence_key = fence_key_of(resource)
  if names_fence and keys[1] ~= fence_key then fail('the key ' .. keys[1] .. ' is fenceguard\'s own') end
  if is_cluster() and not names_fence then fail('in a cluster name ' .. fence_key .. ' first, then the other keys') end
  return resource, data
end

local function require_claim(token, holder, sequence)
  if not token or not is_token(token) then fail('a token is 1 to ' .. number_max) end
  if not holder or #holder > 128 or string.find(holder, '[^!-~]') then
    fail('a holder is up to 128 visible ASCII characters')
  end
  if sequence and sequence ~= '-' and not is_number(sequence) then fail('a sequence is 0 to ' .. number_max .. ', or -') end
end

-- The command's place in the table. Every key that it names is declared.
local function require_command(keys, words)
  if #words == 0 then fail('name a command') end
  -- unpack() raises near 8,000, when the sequence is recorded already.
  if #words > 7000 then fail('a command has up to 7000 words') end
  local facts = places()[string.upper(words[1])]
  if not facts then fail('the command ' .. words[1] .. ' cannot be guarded by this function') end
  local declared = {}
  for _, key in ipairs(keys) do declared[key] = true end
  local last = ({one = 2, two = 3})[facts.place] or #words
  local step = facts.place == 'pairs' and 2 or 1
  if #words < last or #words < 2 then fail('the command ' .. words[1] .. ' names too few keys') end
  for at = 2, last, step do
    if not declared[words[at]] then fail('the key ' .. words[at] .. ' is not among the declared ones') end
  end
  return facts
end

local function own_keys(resource)
  if is_cluster() then return {fence_key_of(resource)} end
  return {fence_key_of(resource), prefix .. 'namespace', prefix .. 'resources'}
end

local function write(keys, args)
  local token, holder, sequence = args[1], args[2], args[3]
  require_claim(token, holder, sequence)
  if not sequence then fail('give a sequence, or -') end
  local resource, data = read_keys(keys)
  local words = {}
  for at = 4, #args do words[at - 3] = args[at] end
  local facts = require_command(data, words)
  -- What writes nothing must not use up a sequence.
  if not facts.writes then sequence = '-' end
  local claim = table.concat({token, holder, sequence, '0', jump_max}, ' ')
  local own = own_keys(resource)
  local answer = guarded({own[1], own[2]}, {claim, 'all ' .. (facts.writes and '' or '-') .. #words, unpack(words)},
                         is_cluster())
  if answer.err then return answer end
  local reply = answer[5]
  if answer[4] then reply = answer[4][2] end  -- beyond 2^53: its digits, as text
  return {answer[1] == 'raised' and 'admitted' or answer[1], answer[2], answer[3], reply}
end

local function advance(keys, args)
  require_claim(args[1], args[2])
  if #args ~= 2 then fail('an advance has a token and a holder') end
  local resource = read_keys(keys)
  local answer = advanced(own_keys(resource), {resource, args[1], args[2], jump_max, '0'})
  if answer.err then return answer end
  return {answer[1], answer[2]}
end

local function show(keys)
  local own = own_keys(read_keys(keys))
  local found = looked({own[1], own[2]})
  if #found == 1 then return found end
  return {found[1], found[2], found[4], found[5]}  -- without its holder: token and holder together are a claim
end

redis.register_function('fenceguard_write', write)
redis.register_function{function_name = 'fenceguard_advance', callback = advance, flags = {'allow-oom'}}
redis.register_function{function_name = 'fenceguard_show', callback = show, flags = {'no-writes'}}
redis.register_function{function_name = 'fenceguard_version', callback = function() return version end,
                        flags = {'no-writes', 'allow-stale'}}
