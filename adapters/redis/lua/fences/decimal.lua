-- Numbers of up to 63 bits as decimal strings without leading zeros: Lua's own numbers round above 2^53.

local function is_less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function greater_of(a, b)
  if is_less(a, b) then return b end
  return a
end

-- Exact, because each half stays below 2^53.
local function sum(a, b)
  local low = tonumber(string.sub(a, -9)) + tonumber(string.sub(b, -9))
  local high = (tonumber(string.sub(a, 1, -10)) or 0) + (tonumber(string.sub(b, 1, -10)) or 0)
  if low >= 1e9 then
    low = low - 1e9
    high = high + 1
  end
  if high == 0 then return string.format('%d', low) end
  return string.format('%.0f%09d', high, low)
end
