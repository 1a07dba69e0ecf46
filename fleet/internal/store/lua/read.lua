-- Reads a key's word: w as Redis has it, false if there is none, and h * 1e9 + l the
-- same as a pair, because a number here holds 53 bits and a word has 63. Of what is no
-- word, h is -1.
local w = redis.call('GET', key)
local h, l = 0, 0
if w then
  h, l = string.match(w, '^([1-9]%d*)(%d%d%d%d%d%d%d%d%d)$')
  if h then
    h, l = h + 0, l + 0
    if h > 9223372036 or h == 9223372036 and l > 854775791 then h = -1 end
  else
    h, l = 0, string.match(w, '^[1-9]%d*$') or w == '0' and w
    if l then l = l + 0 else h = -1 end
  end
end
