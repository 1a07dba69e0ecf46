-- The call may start at t microseconds and rest nanoseconds at the latest.
local t = math.max(us, 0)
if t > e then t, rest = e, rest + 999 end
v = (t - t % per) / per
if v > k then
  if v == k + 1 then b = c else b = 0 end
  k, c = v, 0
end
if c + n > limit then k, b, c = k + 1, c, 0 end
t = t + patience - k * per

-- It fits if so much room is left for what counts of the window before:
-- b * (per - t) microseconds, less b * (rest + 1) nanoseconds, <= room * per.
-- The products on the left are multiples of 2^22, those on the right less than 2^52:
-- nothing is lost.
if k <= last and t >= 0 then
  local room, left = limit - n - c, per - t
  local low, perlow = left % 4194304, per % 4194304
  if b * (left - low) - room * (per - perlow) <= math.floor(b * (rest + 1) / 1000) - (b * low - room * perlow) then
    ms = math.ceil((k + 2) * per / 1000)
    c = c + n
  end
end
