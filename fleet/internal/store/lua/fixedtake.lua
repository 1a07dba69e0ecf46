if c + n <= limit then
  c = c + n
else
  v, c, promised = v + length, n, true
end
-- A promised one opens length before its end. That may be waited for patience * step +
-- rest nanoseconds.
if v <= last and (not promised or (v - length - s - patience) * step <= r + rest) then ending = v end
