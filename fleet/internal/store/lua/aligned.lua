-- AlignedWindow: the word is the number of a window since 1970, and a count of so many bits
-- that size is 2 to their power. d is that, or 2^23 if that is less, and size = d * over.
-- Windows last per microseconds, and instant 0 is zero microseconds after 1970.
local q = h % d
local v = q * 1e9 + l
local c = v % d
v = (h - q) / d * 1e9 + (v - c) / d
q = v % over
c = c + q * d
local k = math.min((v - q) / over, last)

-- The window that the call comes to. One that has not begun stays.
local t = math.min(math.max(us, 0), e)
v = zero + t
v = (v - v % per) / per
if v > k then k, c = v, 0 end
CALL
if ms then
  q = c % d
  v = k * over + (c - q) / d
  local b = v % 1e9
  c = q + b * d
  l = c % 1e9
  h = (v - b) / 1e9 * d + (c - l) / 1e9
end
