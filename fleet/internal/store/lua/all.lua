-- Decides on all keys first, and writes only if all allow it.
local known, found, writes, allowed = {}, {}, {}, ARGV[#KEYS + 1] == '1'
for i, key in ipairs(KEYS) do
  local kind = string.sub(ARGV[i], 1, 1)
  if kind == 'l' then
    local n, limit, per, patience = struct.unpack('<dddd', ARGV[i], 2)
    LOG
    if first < 0 then return {i, newest[1]} end
    found[i] = LOGREPLY
    allowed = allowed and taken == 1
    if known[key] then writes[known[key]] = nil end -- this one records its units as well
    known[key] = i
    writes[i] = function()
      RECORD
    end
  else
    local h, l
    if known[key] then -- the same key stands here twice
      h, l = known[key][1], known[key][2]
      found[i] = {false, us, 0}
    else
      READ
      if h < 0 then return {i, w} end
      found[i] = {w, us, 0}
    end
    local ms
    ms, h, l = take[kind](us, h, l, struct.unpack(format[kind], ARGV[i], 2))
    if ms then
      found[i][3] = 1
      known[key] = {h, l}
      writes[i] = function()
        WRITE
      end
    else
      allowed = false
    end
  end
end
if allowed then
  for i = 1, #KEYS do
    if writes[i] then writes[i]() end
  end
end
return found
