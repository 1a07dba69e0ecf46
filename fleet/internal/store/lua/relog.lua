-- Gives units of a log back: the count units from number unit on whose time is turn, or
-- if unit is 0 the newest; or charges -count units, as far as twice the limit.
if count > 0 then
  if unit > 0 then
    for i = unit, unit + count - 1 do
      local member = string.format('%.0f', i)
      local score = redis.call('ZSCORE', key, member)
      if score and score + 0 == turn then redis.call('ZREM', key, member) end
    end
  else
    redis.call('ZPOPMAX', key, count)
  end
elseif count < 0 then
  n = math.min(-count, 2 * limit - used)
  start = math.max(now, at)
  if n > 0 then
    RECORD
  end
end
n = 0
