if c + n > limit then k, c = k + 1, 0 end
local begins = k * per - zero
if begins <= e and begins - t <= patience then
  c = c + n
  ms = math.ceil((begins + per) / 1000)
end
