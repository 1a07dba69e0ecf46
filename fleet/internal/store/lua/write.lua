-- The key is there as long as its word means anything, rounded up to a millisecond. The
-- first form is faster, but holds 31 bits where Redis has been built for 32.
local word = l
if h >= 2147483648 then
  word = string.format('%.0f%09.0f', h, l)
elseif h > 0 then
  word = string.format('%d%09d', h, l)
end
redis.call('SET', key, word, EXPIRY)
