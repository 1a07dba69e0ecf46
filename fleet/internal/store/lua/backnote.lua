-- A return or a charge is a change of the log as well, if there is one: the word becomes the later
-- of itself and fh, fl, and ah, al more; or it becomes that much less, but fh, fl at least.
if log and ms then
  local sh, sl, ch, cl = fh, fl, ah, al
  if n > 0 then
    sh, sl, ch, cl = fh + ah, fl + al, -ah, -al
    if sl >= 1e9 then sh, sl = sh + 1, sl - 1e9 end
  end
  log = noted(log, oh, ol, sh, sl, ch, cl, 0, h, l)
end
