-- SlidingWindow: the word is the number of a window, and the counts of the one before
-- it and of its own, of so many bits that size is 2 to their power. d is that, or 2^23
-- if that is less, and size = d * over. Windows last per microseconds.
local q = h % d
local v = q * 1e9 + l
local c = v % d
v = (h - q) / d * 1e9 + (v - c) / d
q = v % over
c = c + q * d
v = (v - q) / over
local b = v % size
local k = math.min((v - b) / size, last)
CALL
if ms then
  q = c % d
  v = (k * size + b) * over + (c - q) / d
  b = v % 1e9
  c = q + b * d
  l = c % 1e9
  h = (v - b) / 1e9 * d + (c - l) / 1e9
end
