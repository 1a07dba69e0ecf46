-- Charges units to each key, or gives them back, by the parameters in its argument, and
-- replies the word from before and the next one as a pair. A key that holds something else
-- is left as it is, and spoils nothing for the others: the pair is -1, 0 then. Most keys owe
-- as much as the one before, and have the same parameters.
-- The body leaves them as they are, or brings them up to the present, which is one instant.
local replies = {us}
local PARAMS
for i, key in ipairs(KEYS) do
  if ARGV[i] ~= ARGV[i - 1] then
    UNPACK
  end
  READ
  local was = h
  if h >= 0 then
    local ms, gone
    BODY
    if gone then
      redis.call('DEL', key)
    elseif ms then
      WRITE
    end
  end
  if was < 0 then h, l = -1, 0 end
  replies[3 * i - 1], replies[3 * i], replies[3 * i + 1] = w, h, l
end
return replies
