-- Time in which no server could beat is added to the scores of all. The first write needs memory:
-- after another write, Redis would let the script go on although it is full and refuses takes.
local ttl, keep, life = ARGV[2] + 0, ARGV[3] + 0, ARGV[5] + 0
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
local away = newest and us > newest + 0 and us + ttl - newest or 0
for _, name in ipairs(KEYS) do
  if away > 0 then
    for _, member in ipairs(redis.call('ZRANGE', name, 0, -1)) do redis.call('ZINCRBY', name, string.format('%.0f', away), member) end
  end
end
redis.call('ZADD', key, us + ttl, ARGV[1])
for _, name in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', name, '-inf', string.format('%.0f', us - keep))
end
local own = string.format('%.0f ', us) .. ARGV[4]
local limits = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #limits, 2 do
  if string.gsub(limits[i], '^%d+ ', '', 1) == ARGV[4] then own = limits[i] end
end
redis.call('ZADD', KEYS[2], us + ttl, own)
local ms = math.ceil((us + life) / 1000)
for _, name in ipairs(KEYS) do
  local key = name
  redis.call(LIFE)
end
local there = string.format('(%.0f', us)
return {us, redis.call('ZCOUNT', key, there, '+inf'), redis.call('ZCARD', key), redis.call('ZRANGEBYSCORE', KEYS[2], there, '+inf')}
