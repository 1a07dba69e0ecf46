-- FixedWindow: the word is the end of a window in steps, times d, and a count, and
-- half of d besides if the window was promised.
local q = h % d
local v = q * 1e9 + l
local c = v % d
v = (h - q) / d * 1e9 + (v - c) / d
if v > last then v = last end
local promised = c >= half
if promised then c = c - half end

-- The time is step * s + r nanoseconds since the first instant, 1.
local s, r = last - length, 0
if us <= e then
  local t = math.max(us, 0)
  r = t % step
  s = (t - r) / step * 1000
  t = r * 1000 - 1
  r = t % step
  s = s + (t - r) / step
end

-- The window that the call comes to. 0 is the word of a key that was never used.
if s >= v or h + l == 0 then
  v, c, promised = s + length, 0, false
  if r > 0 then v = v + 1 end
end
local ending -- when the word ends, if it is to be another
CALL
if ending then
  ms = ending % 1e6
  ms = (ending - ms) / 1e6 * step + math.ceil((ms * step + 1) / 1e6)
  if promised then c = c + half end
  q = v % 1e9
  c = c + q * d
  l = c % 1e9
  h = (v - q) / 1e9 * d + (c - l) / 1e9
end
