-- Gives units back to a key, or charges them. A take that left the word wh, wl is undone
-- whole if that is still there: bh, bl, which ends at the millisecond ends, is put back.
READ
if h < 0 then return {w, us, -1} end
local ms -- when the next word ends, if there is one
local gone -- it means nothing already
if h == wh and l == wl then
  h, l, ms = bh, bl, ends
  gone = ms * 1000 <= us
else
  BODY
end
if gone then
  redis.call('DEL', key)
elseif ms then
  WRITE
end
return {w, us, 0, h, l}
