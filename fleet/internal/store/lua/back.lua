-- Gives units back to a key, or charges them. If the word that a take left, wh, wl, is still
-- there, bh, bl is put in its place, which ends at the millisecond ends. If bh is -1 nothing is.
READ
if h < 0 then return {w, us, -1} end
local ms -- when the next word ends, if there is one
local gone -- it means nothing already
if h == wh and l == wl and bh >= 0 then
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
