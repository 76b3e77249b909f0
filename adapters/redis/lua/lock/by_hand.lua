-- Records who set the counter by hand.

local function note_by_hand(list, from, to, by)
  redis.call('RPUSH', list, cjson.encode({by = by, from = from, to = to, at = redis.call('TIME')[1]}))
end
