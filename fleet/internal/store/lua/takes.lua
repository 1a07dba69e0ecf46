-- Words in capitals on a line of their own are other files, put in by takeScript in scripts.go.
-- Options.clocked puts in how long a word is kept.
--
-- Decides on calls of the same size and patience, for each key on as many as its byte of
-- ARGV[2] says, and writes what became of them all. At one instant, once one is refused
-- so are the others. A key that holds something else spoils nothing for the others.
--
-- KEYS has the names of the words, then those of what is kept of blocks, and then those of logs if
-- calls may give back: see note.lua. Words and blocks are read at once. What was there of blocks
-- stands at the end of the reply, each behind the number of its key, and nothing of keys that have
-- none.
local replies, blocks = {us}, {}
local keys = #ARGV[2]
local values = redis.call('MGET', unpack(KEYS, 1, 2 * keys))
for i = 1, keys do
  local key, w, b = KEYS[i], values[i], values[keys + i]
  local taken, calls = 0, string.byte(ARGV[2], i)
  READ
  BLOCK
  if h < 0 then
    taken = -1
  elseif level >= 0 and not blocked then
    local till, log -- a call that is refused leaves what the one before has set
    for call = 1, calls do
      local ms, sh, sl
      local bh, bl = h, l
      BODY
      if not ms then break end
      taken, till = call, ms
      if sh then log = noted(log or redis.pcall('GET', KEYS[2 * keys + i]), bh, bl, sh, sl, ah, al, 1, h, l) end
    end
    local refusals = calls - taken
    if taken > 0 then
      local ms = till
      FORMAT
      if w then
        redis.call('SET', key, word, EXPIRY)
      elseif not redis.call('SET', key, word, EXPIRY, 'NX') then
        -- MGET finds nothing where there is no string.
        w, taken, refusals = redis.pcall('GET', key), -1, 0
      end
      if log and taken > 0 then redis.call('SET', KEYS[2 * keys + i], log, EXPIRY) end
    end
    local blockKey = KEYS[keys + i]
    PUNISH
  end
  replies[2 * i], replies[2 * i + 1] = w, taken
  if b then
    blocks[#blocks + 1] = i
    blocks[#blocks + 1] = b
  end
end
for _, b in ipairs(blocks) do replies[#replies + 1] = b end
return replies
