-- Brings the word forward by the ticks ah, al, but not to before now or fh, fl; or if n is
-- less than 0 puts it off by them, as far as a word goes. If they are those of a take that left
-- another word than this, only what counts of them before dh, dl comes back, and nothing if the
-- word lies ahead by more than the ticks rh, rl: see undrained.
if wh >= 0 and not (h == wh and l == wl) then
  if (h - th - rh) * 1e9 + (l - tl - rl) > 0 then
    n = 0
  elseif (dh - th - ah) * 1e9 + (dl - tl - al) < 0 then
    ah, al = dh - th, dl - tl
    if al < 0 then ah, al = ah - 1, al + 1e9 end
    if ah < 0 or ah == 0 and al == 0 then n = 0 end
  end
end
if (th - fh) * 1e9 + (tl - fl) > 0 then fh, fl = th, tl end
local owes = (h - fh) * 1e9 + (l - fl) > 0
if n < 0 then
  if not owes then h, l = fh, fl end
  h, l = h + ah, l + al
  if l >= 1e9 then h, l = h + 1, l - 1e9 end
  if h > 9223372036 or h == 9223372036 and l > 854775791 then h, l = 9223372036, 854775791 end
elseif n > 0 and owes then
  if (h - fh - ah) * 1e9 + (l - fl - al) > 0 then
    h, l = h - ah, l - al
    if l < 0 then h, l = h - 1, l + 1e9 end
  else
    h, l = fh, fl
    gone = (h - th) * 1e9 + (l - tl) <= 0 -- a store may not have been full ever
  end
end
if n < 0 or n > 0 and owes then
  ms = math.ceil((h * 125 + math.ceil(l / 8e6)) / 2)
end
