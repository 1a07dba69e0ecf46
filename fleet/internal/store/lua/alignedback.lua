-- Gives n units back to the window, or charges -n, as far as a count goes. turn is -1, or
-- which window they must be of.
local back = 0
if turn < 0 or turn == k then back = math.min(n, c) end
if back ~= 0 then
  c = math.min(c - back, full)
  local ending = k * per - zero
  if c > 0 then ending = ending + per end
  gone = t >= ending
  ms = math.ceil(ending / 1000)
end
