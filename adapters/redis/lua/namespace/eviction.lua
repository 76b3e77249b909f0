-- Whether fences of a namespace may have been evicted. What is evicted leaves no trace, so that a policy which may evict
-- fences was seen is noted in the record, until init.lua raises the floor above all that was granted, or until it is certain
-- that nothing was evicted: the run of the server in which it was seen counts no key, has not begun to count anew, and was
-- no replica since, in which what another evicts is deleted uncounted.
-- KEYS: the record. ARGV: 1 if the present policy may evict fences. Answers 1 if some may have been evicted, or may be.

local noted = noted_in(KEYS[1])
if ARGV[1] == '0' and not noted then return 0 end
local run = (string.match(info('server'), 'run_id:(%w+)') or 'unknown') .. ':' ..
            (string.match(info('replication'), 'master_replid:(%w+)') or 'unknown')
if noted ~= run and noted ~= 'several' and redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'evicting', noted and 'several' or run)
end
if ARGV[1] == '1' then return 1 end
local commands = info('commandstats')
local evicted_none = noted == run and may_evict() == false and
                     string.find(info('stats'), '\nevicted_keys:0\r') and string.find(commands, 'cmdstat_', 1, true) and
                     not string.find(commands, 'cmdstat_config|resetstat:', 1, true)
if not evicted_none then return 1 end
redis.call('HSET', KEYS[1], 'evicting', '')
return 0
