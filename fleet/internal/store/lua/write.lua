-- The key is there as long as its word means anything, rounded up to a millisecond.
redis.call('SET', key, h > 0 and string.format('%.0f%09.0f', h, l) or l, EXPIRY)
