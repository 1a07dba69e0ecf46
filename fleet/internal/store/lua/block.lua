-- Reads what is kept of a key in addition to its word, b: level is how many blocks there were
-- in a row. The key is blocked until blockAt microseconds; or so many refusals, strikes, count
-- since it was the step blockAt, of 1,024 ns, which is the microsecond opened; or neither. Time
-- stands still after 9 years. Of what is none of this, level is -1.
local present = math.min(math.max(us, 0), 288230376151678)
local level, blockAt, strikes, opened, blocked = 0, 0, 0, 0, false
if b then
  local times, at, count = string.match(b, '^(%d%d?):(%d+):?(%d*)$')
  level, blockAt, strikes = tonumber(times) or 16, tonumber(at) or 0, tonumber(count) or 0
  if level > 15 or blockAt > 288230376151678 or strikes > 1023 then
    level = -1
  elseif strikes == 0 then
    blocked = blockAt > present
    if not blocked and present >= blockAt + forgetUs then level = 0 end
  else
    local r = blockAt % 125
    opened = (blockAt - r) / 125 * 128 + math.ceil(r * 128 / 125)
    if present >= opened + windowUs then
      strikes = 0
      if present >= opened + forgetUs then level = 0 end
    end
  end
end
