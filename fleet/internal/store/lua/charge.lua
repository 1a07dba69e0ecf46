-- Charges units to each key, or gives them back, and replies the word from before and the
-- next one. ARGV has the parameters of each key, '' for those of the key before. If the key
-- has the same word as the one before as well, the same comes of it, and is not worked out
-- again. A key that holds something else is left as it is, and spoils nothing for the
-- others: its next word is nil then.
-- The body leaves the parameters as they are, or brings them up to the present, which is one
-- instant.
local words = redis.call('MGET', unpack(KEYS))
local replies = {us}
local PARAMS
local before, h, l, ms, gone, word, option, till
for i, key in ipairs(KEYS) do
  local w = words[i]
  if ARGV[i] ~= '' or w ~= before then
    if ARGV[i] ~= '' then
      UNPACK
    end
    READ
    before, ms, gone, word = w, nil, nil, false
    if h >= 0 then
      BODY
      FORMAT
      word = word .. '' -- a small one is a number
      if ms then
        option, till = EXPIRY
        till = string.format('%.0f', till)
      end
    end
  end
  local next = word
  if word and gone then
    redis.call('DEL', key)
  elseif word and ms and w then
    redis.call('SET', key, word, option, till)
  elseif word and ms and not redis.call('SET', key, word, option, till, 'NX') then
    -- MGET finds nothing where there is no string.
    w, next = redis.pcall('GET', key), false
  end
  replies[2 * i], replies[2 * i + 1] = w, next
end
return replies
