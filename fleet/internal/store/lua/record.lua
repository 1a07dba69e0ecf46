-- Records n units in a log, taken at start, and forgets those that no longer count. It
-- writes before it forgets: once a script has deleted, Redis does not mind any more
-- whether it has memory left.
for i = first, first + n - 1 do redis.call('ZADD', key, start, string.format('%.0f', i)) end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - per))
local ms = math.ceil((start + per) / 1000)
redis.call(LIFE)
