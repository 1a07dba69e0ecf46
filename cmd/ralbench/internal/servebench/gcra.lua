-- CL.THROTTLE as a script of few steps: KEYS[1], max_burst, count, period, quantity. The key
-- holds the time at which it is as good as new, in seconds.
local burst, period, quantity = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local each = period / tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local fresh = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local after = fresh + quantity * each
local room = now + (burst + 1) * each - after
if room < 0 then
  return {1, burst + 1, math.floor((room + quantity * each) / each), math.ceil(-room), math.ceil(fresh - now)}
end
redis.call('SET', KEYS[1], string.format('%.6f', after), 'PX', math.ceil((after - now) * 1000))
return {0, burst + 1, math.floor(room / each), -1, math.ceil(after - now)}
