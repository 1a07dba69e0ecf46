-- Decides on all keys first, and writes only if all allow it. Refusals count in any case. KEYS
-- has the names of the words, then those of what is kept of blocks, and then those of logs, if a
-- take of kind 'r' may give back: see note.lua, or the marks of takes of kind 'i'. ARGV has what is asked of
-- each, whether to write, and the figures of each one's penalty. For no units it looks.
local keys = math.floor((#ARGV - 1) / 2)
local known, found, writes, allowed = {}, {}, {}, ARGV[keys + 1] == '1'
local kept, counted = redis.call('MGET', unpack(KEYS, keys + 1, 2 * keys)), {}
local made = {} -- blocks of this call
for i = 1, keys do
  local key, blockKey, b = KEYS[i], KEYS[keys + i], kept[i]
  local mostRefused, windowUs, firstUs, longestUs, forgetUs = struct.unpack('<ddddd', ARGV[keys + 1 + i])
  BLOCK
  if level < 0 then return {keys + i, b} end
  blocked = blocked or made[blockKey]
  local kind = string.sub(ARGV[i], 1, 1)
  local passes, uncounted = not blocked, false -- an uncounted refusal is none by the key's limit
  if kind == 'i' then
    local n, limit, term, longest = struct.unpack('<dddd', ARGV[i], 2)
    local markKey, id, held = KEYS[2 * keys + i], string.sub(ARGV[i], 34), known[key] or 0
    INFLIGHT
    uncounted = from > us
    passes = passes and taken == 1 or n == 0 and not blocked
    if not passes then taken = 0 end
    if emptied and n > 0 then
      MARK
    end
    found[i] = INFLIGHTREPLY
    if passes and n > 0 then
      known[key] = held + n
      writes[i] = function()
        ENTER
      end
    end
  elseif kind == 'l' then
    local n, limit, per, patience = struct.unpack('<dddd', ARGV[i], 2)
    LOG
    if first < 0 then return {i, newest[1]} end
    passes = passes and (taken == 1 or n == 0)
    if not passes then taken = 0 end
    found[i] = LOGREPLY
    if n > 0 then
      if known[key] then writes[known[key]] = nil end -- this one records its units as well
      known[key] = i
      writes[i] = function()
        RECORD
      end
    end
  else
    local h, l
    if known[key] then -- the same key stands here twice
      h, l = known[key][1], known[key][2]
      found[i] = {false, us, 0, b}
    else
      READ
      if h < 0 then return {i, w} end
      found[i] = {w, us, 0, b}
    end
    local bh, bl = h, l
    local ms, sh, sl, ch, cl
    if kind ~= '-' then
      ms, h, l, sh, sl, ch, cl = take[kind](us, h, l, struct.unpack(format[kind], ARGV[i], 2))
      passes = passes and ms
    end
    if passes and ms then
      found[i][3] = 1
      known[key] = {h, l}
      writes[i] = function()
        WRITE
        if sh then
          local log = KEYS[2 * keys + i]
          redis.call('SET', log, noted(redis.pcall('GET', log), bh, bl, sh, sl, ch, cl, 1, h, l), EXPIRY)
        end
      end
    end
  end
  if not passes then
    allowed = false
    local refusals = 0
    if mostRefused > 0 and not uncounted and not counted[blockKey] then refusals, counted[blockKey] = 1, true end
    PUNISH
    made[blockKey] = made[blockKey] or refusals > 0 and strikes >= mostRefused
  end
end
if allowed then
  for i = 1, keys do
    if writes[i] then writes[i]() end
  end
end
return found
