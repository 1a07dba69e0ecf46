-- SlidingLog: a sorted set of entries. An entry of class c, from 0 to 3, stands for 10^c units
-- taken at the same microsecond. Its score is c * 2^50 + that microsecond; its member is the
-- number of its first unit, of 15 digits, higher than those of the units before. The first unit
-- of a call has the number of the microsecond at least, so that no number comes again when
-- units were given back or forgotten, if the clock goes on and takes are no faster. A unit
-- counts for per microseconds. A promised turn is recorded at its time; until then every call
-- is treated as if it were that time, so that none overtakes. The same goes for a clock that
-- goes backwards. Time stands still after 9 years. Of what is no log, first is -1.
local band = 1125899906842624
local now = math.min(math.max(us, 0), 288230376151711)
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
local first, at, used = 1e14 + now, -1, 0
local classes, kinds, there = -1, 0, {} -- the highest class, how many there are, and which
if newest[1] then
  if string.find(newest[1], '^[1-9]%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') and string.find(newest[2], '^%d+$') and newest[2] + 0 < 4 * band and newest[2] % band <= 576460752303422 then
    classes = math.floor(newest[2] / band)
  else
    first = -1
  end
end
for c = 0, classes do
  local e = newest
  if c < classes then
    e = redis.call('ZREVRANGEBYSCORE', key, string.format('(%.0f', (c + 1) * band), string.format('%.0f', c * band), 'WITHSCORES', 'LIMIT', 0, 1)
  end
  if e[1] then
    first, at = math.max(first, (tonumber(e[1]) or 0) + 10 ^ c), math.max(at, e[2] - c * band)
    there[c], kinds = true, kinds + 1
  end
end
-- after returns how many units are recorded after that microsecond.
local function after(t)
  local sum = 0
  for c = 0, classes do
    if there[c] then
      sum = sum + 10 ^ c * redis.call('ZCOUNT', key, string.format('%.0f', c * band + math.max(t + 1, 0)), string.format('(%.0f', (c + 1) * band))
    end
  end
  return sum
end
-- earliest returns the earliest microsecond after which no more than that many units are
-- recorded. There are more after low. Mostly it is that of the first entry after low.
local function earliest(low, units)
  local high, next = at, at
  for c = 0, classes do
    local e = there[c] and redis.call('ZRANGEBYSCORE', key, string.format('%.0f', c * band + math.max(low + 1, 0)), string.format('(%.0f', (c + 1) * band), 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if e then next = math.min(next, e - c * band) end
  end
  if after(next) <= units then return next end
  low = next
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if after(middle) > units then low = middle else high = middle end
  end
  return high
end
local start = math.max(now, at)
local taken = 0
if first > 0 then
  if at >= 0 then
    used = after(start - per)
    if used + n > limit then -- until some have left
      if kinds == 1 then
        local stays = math.floor((limit - n) / 10 ^ classes)
        start = redis.call('ZRANGE', key, -1 - stays, -1 - stays, 'WITHSCORES')[2] - classes * band + per
      else
        start = earliest(start - per, limit - n) + per
      end
    end
  end
  if start - now <= patience then taken = 1 end
end
