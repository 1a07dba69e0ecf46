-- Gives the n units of a slot back. It replies how many still counted.
local key, id, left = KEYS[1], ARGV[1], 0
for i = 1, ARGV[2] + 0 do
  local score = redis.call('ZSCORE', key, id .. ':' .. i)
  if score then
    if score + 0 > us then left = left + 1 end
    redis.call('ZREM', key, id .. ':' .. i)
  end
end
return left
