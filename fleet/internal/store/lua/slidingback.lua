-- Gives n units back to the window, or charges -n, as far as a count goes. turn is -1, or
-- which window they must be of: that of the word or the one before it.
local t = math.min(math.max(us, 0), e + 1)
v = math.min(t, e)
v = (v - v % per) / per
local function ends()
  if c > 0 then return (k + 2) * per end
  if b > 0 then return (k + 1) * per end
  return k * per
end
local back = 0
if turn < 0 then
  if v > k then
    if v == k + 1 then b = c else b = 0 end
    k, c = v, 0
  end
  back = math.min(n, c)
  c = math.min(c - back, size - 1)
elseif t < ends() and turn == k then
  back = math.min(n, c)
  c = c - back
elseif t < ends() and turn == k - 1 then
  back = math.min(n, b)
  b = b - back
end
if back ~= 0 then
  gone = t >= ends()
  ms = math.ceil(ends() / 1000)
end
