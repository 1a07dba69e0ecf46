-- Gives units of a log back: those from number unit + keep on, of the count units that were
-- taken at turn, or if unit is 0 the newest; or charges -count units, as far as twice the limit.

-- keeps leaves the units of an entry from number to stop, and removes the others. It is of
-- class c and counts at that microsecond. What stays begins with the same number, so that the
-- key is never without an entry meanwhile, nor without its time to live.
local function keeps(number, stop, c, at)
  if number >= stop then redis.call('ZREM', key, string.format('%.0f', number)) end
  for d = c - 1, 0, -1 do
    while stop - number >= 10 ^ d do
      redis.call('ZADD', key, string.format('%.0f', d * band + at), string.format('%.0f', number))
      number = number + 10 ^ d
    end
  end
end
if count > 0 and unit > 0 then
  -- The entries that the take was recorded in, or what is left of each: its first units.
  local stop = unit + keep
  for c = 3, 0, -1 do
    while count >= 10 ^ c do
      local number = unit
      unit, count = unit + 10 ^ c, count - 10 ^ c
      while number < unit do
        local score = redis.call('ZSCORE', key, string.format('%.0f', number))
        local class = score and math.floor(score / band)
        if not score or class > c or score - class * band ~= turn then break end
        if number + 10 ^ class > stop then keeps(number, stop, class, turn) end
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
      keeps(last + 0, last + 10 ^ c - count, c, instant)
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
