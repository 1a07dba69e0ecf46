-- Funnel, Queue and Bursty: the word is the tick at which all will have drained (or,
-- of a Bursty, its store will be full). It is fh, fl at least. Time stands still at e
-- microseconds and x ticks. Now is th, tl.
--
-- The sign of a difference of pairs, as it is taken here, is right: what is lost of
-- the first term is more than nothing only where that decides.
local t, tl = us, x
if t <= e then t, tl = math.max(t, 0), 0 else t = e end
local th = t % 62500 -- 16000 ticks a microsecond
tl = tl + th * 16000
th = (t - th) / 62500
CALL
