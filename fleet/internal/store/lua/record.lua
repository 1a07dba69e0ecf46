-- Records n units in a log, taken at start, in as few entries as there can be, and forgets
-- some entries that no longer count, more than are recorded. It writes before it forgets: once
-- a script has deleted, Redis does not mind any more whether it has memory left.
local entries, number = {}, first
for c = 3, 0, -1 do
  while first + n - number >= 10 ^ c do
    entries[#entries + 1] = string.format('%.0f', c * band + start)
    entries[#entries + 1] = string.format('%.0f', number)
    number = number + 10 ^ c
  end
end
redis.call('ZADD', key, unpack(entries))
local room = 128
for c = 0, classes do
  if there[c] and room > 0 then
    local low, high = string.format('%.0f', c * band), string.format('%.0f', c * band + now - per)
    local gone = redis.call('ZCOUNT', key, low, high)
    if gone > room then
      local below = redis.call('ZCOUNT', key, '-inf', '(' .. low)
      redis.call('ZREMRANGEBYRANK', key, below, below + room - 1)
    elseif gone > 0 then
      redis.call('ZREMRANGEBYSCORE', key, low, high)
    end
    room = room - gone
  end
end
local ms = math.ceil((start + per) / 1000)
redis.call(LIFE)
