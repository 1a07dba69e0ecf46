-- Funnel, Queue and Bursty: the word is the tick at which all will have drained (or,
-- of a Bursty, its store will be full). A call puts it off by the ticks ah, al if it
-- lies ahead by the ticks rh, rl or less. It is fh, fl at least. Time stands still at
-- e microseconds and x ticks.
--
-- The sign of a difference of pairs, as it is taken here, is right: what is lost of
-- the first term is more than nothing only where that decides.
local t, tl = us, x
if t <= e then t, tl = math.max(t, 0), 0 else t = e end
local th = t % 62500 -- 16000 ticks a microsecond
tl = tl + th * 16000
th = (t - th) / 62500
if (fh - h) * 1e9 + (fl - l) > 0 then h, l = fh, fl end
if (th - h) * 1e9 + (tl - l) > 0 then h, l = th, tl end
if (h - th - rh) * 1e9 + (l - tl - rl) <= 0 then
  h, l = h + ah, l + al
  if l >= 1e9 then h, l = h + 1, l - 1e9 end
  if h < 9223372036 or h == 9223372036 and l <= 854775791 then
    ms = math.ceil((h * 125 + math.ceil(l / 8e6)) / 2) -- 16e6 ticks a millisecond
  end
end
