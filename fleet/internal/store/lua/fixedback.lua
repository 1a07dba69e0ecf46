-- Gives n units back to the window, or charges -n, as far as a count goes. turn is -1, or
-- which window they must be of: its end times two, and one more if it was promised.
local window = v * 2
if promised then window = window + 1 end
local back = math.min(n, c)
if back ~= 0 and (turn < 0 or turn == window) then
  c, ending = math.min(c - back, half - 1), v
  if c == 0 and promised and s < v - length then
    -- Before it opens there is a window that is full.
    v, c = v - math.min(length, v), half - 1
    ending = v
  end
end
