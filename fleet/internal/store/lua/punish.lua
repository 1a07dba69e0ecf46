-- Counts so many refusals of a key, refusals. The last that it takes blocks the key. It writes
-- nothing if something else is there.
if mostRefused > 0 and refusals > 0 and not blocked and level >= 0 then
  if strikes == 0 then
    local r = present % 128
    blockAt, opened = (present - r) / 128 * 125 + math.ceil(r * 125 / 128), present + 2
  end
  strikes = strikes + refusals
  local value, ms
  if strikes < mostRefused then
    value = string.format('%d:%.0f:%d', level, blockAt, strikes)
    ms = opened + (level == 0 and windowUs or forgetUs)
  else
    blockAt = math.min(present + math.min(firstUs * 2 ^ level, longestUs), 288230376151678)
    level = math.min(level + 1, 15)
    value = string.format('%d:%.0f', level, blockAt)
    ms = blockAt + 2 + forgetUs
  end
  ms = math.ceil(ms / 1000)
  redis.call('SET', blockKey, value, EXPIRY, b and 'XX' or 'NX')
end
