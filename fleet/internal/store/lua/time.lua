-- us is the time in microseconds since the epoch.
local us = redis.call('TIME')
us = (us[1] - EPOCH) * 1e6 + us[2]
