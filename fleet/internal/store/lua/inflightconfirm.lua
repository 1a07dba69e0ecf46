-- Confirms units of a server on a key: ARGV has the term, the process of Redis that is known to have
-- counted them, or one before it, and of each slot its ID, its units and the time that it has left. Units
-- that are missing in that process were given back by another server. Another process may have lost
-- them, so that they enter again. It replies for each slot whether its units count.
local key, term, replies = KEYS[1], ARGV[1] + 0, {}
local run
for i = 1, math.floor((#ARGV - 2) / 3) do
  local id, n, left = ARGV[3 * i], ARGV[3 * i + 1] + 0, ARGV[3 * i + 2] + 0
  local there = 0
  for j = 1, n do
    local score = redis.call('ZSCORE', key, id .. ':' .. j)
    if score and score + 0 > us then there = there + 1 end
  end
  replies[i] = 1
  if there < n and ARGV[2] ~= '' then
    run = run or RUN
    if run == ARGV[2] then replies[i] = 0 end
  end
  if replies[i] == 1 then
    local score = string.format('%.0f', us + math.min(term, left))
    for j = 1, n do redis.call('ZADD', key, score, id .. ':' .. j) end
  end
end
local ms = math.ceil((us + term) / 1000)
redis.call(LIFE)
return replies
