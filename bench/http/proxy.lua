-- wrk: a request with a valid token, over 1,000 resources in a fixed scattered order.
-- METHOD and BYTES (of the body) come from the environment.
local resources = 1000
local requests = {}
local place = 0

function init()
  local method = os.getenv("METHOD") or "PUT"
  local body = nil
  if method == "PUT" then body = string.rep("x", tonumber(os.getenv("BYTES") or "100")) end
  for i = 0, resources - 1 do
    local number = (i * 7919) % resources
    local headers = {
      ["Content-Type"] = "text/plain",
      ["Fencing-Token"] = tostring(number + 10),
      ["Fencing-Holder"] = string.format("%032x", number),
    }
    requests[i] = wrk.format(method, string.format("/accounts/%05d", number), headers, body)
  end
end

function request()
  place = (place + 1) % resources
  return requests[place]
end
