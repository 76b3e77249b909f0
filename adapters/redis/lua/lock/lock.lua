-- A lock of ours: 'TOKEN HOLDER ENTRIES'. Entries: how often its holder has entered and not left.

local function parse_lock(value)
  if not value then return nil end
  return string.match(value, '^([1-9]%d*) (%S*) ([1-9]%d*)$')
end
