-- Sets a mark from which units may enter, renewed until two terms from now.
local ms = math.ceil((us + 2 * term) / 1000)
redis.call('SET', markKey, string.format('%.0f %.0f', from, us + 2 * term), EXPIRY)
