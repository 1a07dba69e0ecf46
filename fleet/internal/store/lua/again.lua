-- Makes the changes in the log again without the take gh, gl of nh, nl ticks, or with kh, kl ticks
-- in its place. There is no log if it is not valid. If the bucket had drained between the take and the first
-- change in the log, the take plays no part any more, and the word stays.
log = redis.pcall('GET', KEYS[2])
if type(log) ~= 'string' or string.sub(log, -16) ~= struct.pack('<dd', h, l) then log = nil end
local at, taken = log and #log - 55 or 0, struct.pack('<ddddd', gh, gl, nh, nl, 1)
while at > 16 and string.sub(log, at, at + 39) ~= taken do at = at - 56 end
again = at > 16
if again then
  local parts = {string.sub(log, 1, at - 1)}
  h, l = struct.unpack('<dd', log, at - 16)
  for i = at, #log - 55, 56 do
    local sh, sl, ch, cl, open = struct.unpack('<ddddd', log, i)
    if i == at then ch, cl, open = kh, kl, 0 end
    if i > at or kh > 0 or kl > 0 then
      if (sh - h) * 1e9 + (sl - l) > 0 then h, l = sh, sl end
      h, l = h + ch, l + cl
      if l >= 1e9 then h, l = h + 1, l - 1e9 elseif l < 0 then h, l = h - 1, l + 1e9 end
      if h > 9223372036 or h == 9223372036 and l > 854775791 then h, l = 9223372036, 854775791 end
      parts[#parts + 1] = struct.pack('<ddddddd', sh, sl, ch, cl, open, h, l)
    end
  end
  log = table.concat(parts)
  ms = math.ceil((h * 125 + math.ceil(l / 8e6)) / 2)
  gone = ms * 1000 <= us
elseif log and #log > 16 and gh >= 0 then
  local bh, bl, sh, sl = struct.unpack('<dddd', log)
  again = (sh - bh) * 1e9 + (sl - bl) >= 0 and (sh - gh) * 1e9 + (sl - gl) > 0
end
