-- Puts the word off by the ticks ah, al if it lies ahead by the ticks rh, rl or less.
if (fh - h) * 1e9 + (fl - l) > 0 then h, l = fh, fl end
if (th - h) * 1e9 + (tl - l) > 0 then h, l = th, tl end
if (h - th - rh) * 1e9 + (l - tl - rl) <= 0 then
  h, l = h + ah, l + al
  if l >= 1e9 then h, l = h + 1, l - 1e9 end
  if h < 9223372036 or h == 9223372036 and l <= 854775791 then
    ms = math.ceil((h * 125 + math.ceil(l / 8e6)) / 2) -- 16e6 ticks a millisecond
  end
end
