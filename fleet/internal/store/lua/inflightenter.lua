-- Has n units enter. It writes before it forgets: once a script has deleted, Redis does not mind any
-- more whether it has memory left. No unit lasts longer than a term without another write.
local score = string.format('%.0f', us + math.min(term, longest))
for i = 1, n do redis.call('ZADD', key, score, id .. ':' .. i) end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', us))
local ms = math.ceil((us + term) / 1000)
redis.call(LIFE)
