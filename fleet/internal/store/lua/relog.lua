-- Gives units of a log back: the count units from number unit on that were taken at turn, or if
-- unit is 0 the newest; or charges -count units, as far as twice the limit.
if count > 0 and unit > 0 then
  -- The entries that the take was recorded in, or what is left of each: its first units.
  for c = 3, 0, -1 do
    while count >= 10 ^ c do
      local number = unit
      unit, count = unit + 10 ^ c, count - 10 ^ c
      while number < unit do
        local member = string.format('%.0f', number)
        local score = redis.call('ZSCORE', key, member)
        local class = score and math.floor(score / band)
        if not score or class > c or score - class * band ~= turn then break end
        redis.call('ZREM', key, member)
        number = number + 10 ^ class
      end
    end
  end
elseif count > 0 and after(-1) <= count then
  redis.call('ZREMRANGEBYRANK', key, 0, -1)
elseif count > 0 then
  -- All units of later instants, and of the last instant that is left some, in the smallest
  -- entries first. Of an entry that is not needed whole the first units stay.
  local instant = earliest(after(now - per) > count and now - per or -1, count)
  count = count - after(instant)
  for c = 0, classes do
    local score = string.format('%.0f', c * band + instant)
    redis.call('ZREMRANGEBYSCORE', key, '(' .. score, string.format('(%.0f', (c + 1) * band))
    local whole = math.min(math.floor(count / 10 ^ c), redis.call('ZCOUNT', key, score, score))
    if whole > 0 then
      local rank = redis.call('ZCOUNT', key, '-inf', score)
      redis.call('ZREMRANGEBYRANK', key, rank - whole, rank - 1)
      count = count - whole * 10 ^ c
    end
    local last = count > 0 and redis.call('ZREVRANGEBYSCORE', key, score, score, 'LIMIT', 0, 1)[1]
    if last then
      redis.call('ZREM', key, last)
      local number, stop = last + 0, last + 10 ^ c - count
      for d = c - 1, 0, -1 do
        while stop - number >= 10 ^ d do
          redis.call('ZADD', key, string.format('%.0f', d * band + instant), string.format('%.0f', number))
          number = number + 10 ^ d
        end
      end
      count = 0
    end
  end
elseif count < 0 then
  n = math.min(-count, 2 * limit - used)
  start = math.max(now, at)
  if n > 0 then
    RECORD
  end
end
n = 0
