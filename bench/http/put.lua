-- wrk: PUT of 100 bytes with a valid token, over 10,000 resources in a fixed scattered order.
local resources = 10000
local requests = {}
local place = 0

function init()
  local body = string.rep("x", 100)
  for i = 0, resources - 1 do
    local number = (i * 7919) % resources
    local headers = {
      ["Content-Type"] = "text/plain",
      ["Fencing-Token"] = tostring(number + 1),
      ["Fencing-Holder"] = string.format("%032x", number),
    }
    requests[i] = wrk.format("PUT", string.format("/accounts/%05d", number), headers, body)
  end
end

function request()
  place = (place + 1) % resources
  return requests[place]
end
