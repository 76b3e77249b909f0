-- wrk: a PUT to each of COUNT resources from number FIRST on, once, with a valid token; ends when they are answered.
-- FIRST and COUNT come from the environment. wrk asks for a request or two that it does not send.
local number = tonumber(os.getenv("FIRST"))
local count = tonumber(os.getenv("COUNT"))
local last = number + count
local written = 0
local idle = 0
local headers = { ["Fencing-Token"] = "7", ["Fencing-Holder"] = string.format("%032x", 7) }

function request()
  if number == last then return wrk.format("GET", "/objects/none") end
  number = number + 1
  return wrk.format("PUT", string.format("/objects/%09d", number), headers, "x")
end

function response(status)
  if status == 204 then
    written = written + 1
  elseif status == 200 then
    idle = idle + 1
  else
    io.stderr:write("answered ", status, "\n")
    os.exit(1)
  end
  if idle == 1000 then os.exit(written > 0.999 * count and 0 or 1) end
end
