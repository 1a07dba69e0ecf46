-- Takes units for a tenant in the first of three ways that have room: from its own funnel, while the group
-- is charged in any case; from its ceiling and the group, as a loan; from its own funnel, ahead. KEYS has the
-- words of the group, the funnel and the ceiling, and then their logs. ARGV has two parts for each way: the
-- number of a word, the letter of its take, and the take's figures. A way without its second part is closed.
-- With KEYS[7] the tenant has its own funnel only by a grant: see reserve.lua.
local words = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local before = {}
for i = 1, 3 do
  local w = words[i]
  READ
  if h < 0 then return {i, w} end
  before[i] = {h, l}
end
local granted, sums, owes
if KEYS[7] then
  RESERVE
end
local way, made = 0, {}
for i = 1, 5, 2 do
  if way == 0 and ARGV[i + 1] ~= '' then
    way, made = (i + 1) / 2, {}
    for j = i, i + 1 do
      local part = ARGV[j]
      if part ~= '' then
        local number, kind = string.byte(part) - 48, string.sub(part, 2, 2)
        made[number] = {take[kind](us, before[number][1], before[number][2], struct.unpack(format[kind], part, 3))}
        if not made[number][1] then way = 0 end
      end
    end
  end
end
for number = 1, way > 0 and 3 or 0 do
  if made[number] then
    local key, bh, bl = KEYS[number], before[number][1], before[number][2]
    local ms, h, l, sh, sl, ch, cl = unpack(made[number], 1, 7)
    WRITE
    if sh then
      local log = KEYS[3 + number]
      redis.call('SET', log, noted(redis.pcall('GET', log), bh, bl, sh, sl, ch, cl, 1, h, l), EXPIRY)
    end
  end
end
if owes then
  local own = way % 2 == 1 and made[2] or {0, before[2][1], before[2][2]}
  owes(own[2], own[3])
end
return {us, way, words[1], words[2], words[3], granted, sums}
