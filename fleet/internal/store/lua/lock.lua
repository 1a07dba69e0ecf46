-- Blocks a key for ARGV[1] microseconds, or leaves it blocked if it is for longer; for 0 it
-- looks. What was there before is replied.
local b = redis.call('GET', key)
BLOCK
local d, done = ARGV[1] + 0, 0
if level >= 0 and d > 0 and present + d <= 288230376151678 then
  blockAt, done = math.max(blocked and blockAt or 0, present + d), 1
  local ms = math.ceil((blockAt + 2 + forgetUs) / 1000)
  redis.call('SET', key, string.format('%d:%.0f', level, blockAt), EXPIRY)
end
return {us, b, done}
