-- Decides on calls of the same size and patience, for each key on as many as its byte of
-- ARGV[2] says, and writes what became of them all. At one instant, once one is refused
-- so are the others. A key that holds something else spoils nothing for the others.
local replies = {us}
for i, key in ipairs(KEYS) do
  local taken = 0
  READ
  if h < 0 then
    taken = -1
  else
    local till -- a call that is refused leaves what the one before has set
    for call = 1, string.byte(ARGV[2], i) do
      local ms
      BODY
      if not ms then break end
      taken, till = call, ms
    end
    if taken > 0 then
      local ms = till
      WRITE
    end
  end
  replies[2 * i], replies[2 * i + 1] = w, taken
end
return replies
