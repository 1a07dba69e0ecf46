-- Gives units back to a key, or charges them. If the word that a take left, wh, wl, is still
-- there, bh, bl is put in its place, which ends at the millisecond ends. If bh is -1 nothing is.
READ
if h < 0 then return {w, us, -1} end
local ms -- when the next word ends, if there is one
local gone -- it means nothing already
local oh, ol = h, l
local log, again -- see again.lua
AGAIN
if again then
elseif h == wh and l == wl and bh >= 0 then
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
if log and ms then
  while #log > 16 and struct.unpack('<d', log, 49) == 0 do log = string.sub(log, 57) end
  if #log == 16 then -- no take is open
    redis.call('DEL', KEYS[2])
  else
    redis.call('SET', KEYS[2], log, EXPIRY)
  end
end
return {w, us, 0, h, l, again and 1 or 0}
