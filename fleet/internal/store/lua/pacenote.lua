-- Sets the record sh, sl of a take that starts at once, which brings the word no further ahead than
-- the ticks qh, ql and its own. Behind a promised turn only the policy knows what may come back.
if ms and (h - ah - th - qh) * 1e9 + (l - al - tl - ql) <= 0 then
  sh, sl = th, tl
  if (th - fh) * 1e9 + (tl - fl) < 0 then sh, sl = fh, fl end
end
