-- SlidingLog: a sorted set with a member for each unit, a number of 15 digits, higher than
-- those before it, whose score is the microsecond at which the unit is taken. The first of
-- a call is that of the microsecond at least, so that no number comes again when units were
-- given back or forgotten, if the clock goes on and nobody takes faster. A unit counts
-- for per microseconds. Who was promised a later turn is recorded there already; until
-- then all are treated as if it were now, so that nobody overtakes. That goes for a
-- clock that goes backwards as well. Time stands still after 9 years. Of what is no
-- log, first is -1.
local now = math.min(math.max(us, 0), 288230376151711)
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
local first, at, used = 1e14 + now, -1, 0
if newest[1] then
  if string.find(newest[1], '^[1-9]%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') and string.find(newest[2], '^%d+$') and #newest[2] <= 15 then
    first, at = math.max(first, newest[1] + 1), newest[2] + 0
  else
    first = -1
  end
end
local start = math.max(now, at)
local taken = 0
if first > 0 then
  if at >= 0 then
    used = redis.call('ZCOUNT', key, string.format('(%.0f', start - per), '+inf')
    if used + n > limit then
      local leaves = redis.call('ZCARD', key) + n - limit - 1 -- the last that must have left
      start = redis.call('ZRANGE', key, leaves, leaves, 'WITHSCORES')[2] + per
    end
  end
  if start - now <= patience then taken = 1 end
end
