-- Gives units of a log back: the count units from number unit on, or if that is 0 the
-- newest; or charges -count units, as far as twice the limit.
if count > 0 then
  if unit > 0 then
    for i = unit, unit + count - 1 do redis.call('ZREM', key, string.format('%.0f', i)) end
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
