-- Reads a key's word: w as Redis has it, false if there is none, and h * 1e9 + l the
-- same as a pair, because a number here holds 53 bits and a word has 63. Of what is no
-- word, h is -1.
local w = redis.call('GET', key)
local h, l = 0, 0
if w then
  if not string.find(w, '^[1-9]%d*$') and w ~= '0' then
    h = -1
  else
    l = string.sub(w, -9) + 0
    if #w > 9 then h = string.sub(w, 1, -10) + 0 end
    if h > 9223372036 or h == 9223372036 and l > 854775791 then h = -1 end
  end
end
