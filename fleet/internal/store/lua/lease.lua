-- Takes as many units as fit, from need to most, or none.
local function fits(n)
  local h, l, ms = h, l, nil
  BODY
  return ms, h, l
end
local granted, ms, nh, nl = most, fits(most)
if not ms then
  granted, ms, nh, nl = need, fits(need)
  if not ms then return {w, us, 0} end
  local beyond = most -- this many do not fit
  while beyond - granted > 1 do
    local n = math.floor((granted + beyond) / 2)
    local m, a, b = fits(n)
    if m then granted, ms, nh, nl = n, m, a, b else beyond = n end
  end
end
h, l = nh, nl
