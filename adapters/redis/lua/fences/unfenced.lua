-- The rule for a client that makes no claim, where such clients may write (--unfenced allow): as long as no resource of
-- its commands has a fence. Takes the place of equal.lua: is_equal says that the commands may be run.
-- KEYS: the index of the namespace, unless this is a cluster, the fences, and then the keys of the commands.
-- ARGV: how many fences, and what follows the claim in guarded.lua.
-- Fails with NOFENCE and the resource, and nothing is done, where one has a fence, or the index says that it had.

local is_equal = true
do
  local before = is_cluster and 0 or 1
  for i = before + 1, before + tonumber(ARGV[1]) do
    local resource = string.match(KEYS[i], '{(.*)}$')
    if redis.call('EXISTS', KEYS[i]) == 1 or (not is_cluster and redis.call('ZSCORE', KEYS[1], resource)) then
      return redis.error_reply('NOFENCE ' .. resource)
    end
  end
end
