-- Records n units in a log, taken at start.
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - per))
for i = first, first + n - 1 do redis.call('ZADD', key, start, string.format('%.0f', i)) end
local ms = math.ceil((start + per) / 1000)
redis.call(LIFE)
