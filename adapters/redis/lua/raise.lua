-- Lifts a counter to a number, never lowers it. KEYS: counter. ARGV: the number.

local value = require_number(KEYS[1], redis.call('HGET', KEYS[1], 'value'))
-- One that was lost must not come back as one that is merely low.
local present = value or leap(nil)
local raised = greater_of(present, ARGV[1])
if raised ~= value then redis.call('HSET', KEYS[1], 'value', raised) end
return redis.status_reply('OK')
