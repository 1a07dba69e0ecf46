-- A word's latest changes are kept beside it, under the name of its key and ":takes", so that a give-back can
-- leave the word as if its take had never been: see Store.Keep. The log is the word before the first
-- change, and for each change a record and the word after it. By a record at sh, sl of ch, cl
-- ticks, the word becomes the later of itself and sh, sl, and then ch, cl more. open is 1 while
-- the take can be given back. The log is valid while it ends with the word that is there.
--
-- noted returns the log with one more record, which makes h, l of the word bh, bl. It begins anew
-- if it is not valid, or if the bucket had drained by then: what came before plays no part.
local function noted(log, bh, bl, sh, sl, ch, cl, open, h, l)
  local before = struct.pack('<dd', bh, bl)
  if type(log) ~= 'string' or string.sub(log, -16) ~= before or (sh - bh) * 1e9 + (sl - bl) >= 0 then log = before end
  if #log >= 160 * 56 then log = string.sub(log, 32 * 56 + 1) end
  return log .. struct.pack('<ddddddd', sh, sl, ch, cl, open, h, l)
end
