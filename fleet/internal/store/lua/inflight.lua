-- InFlight: a sorted set with a member for each unit in use. A unit's score is the microsecond at which
-- it ends: a term after its server confirmed it last, or earlier if its longest time is over. The
-- mark beside the sets tells from when units may enter, and until when it counts as there: servers
-- renew it. Without it Redis has lost its data, and no unit enters for a term, in which all servers
-- confirm their units. held has the units of earlier asks of this call on the key.
local from, till = string.match(redis.call('GET', markKey) or '', '^(%d+) (%d+)$')
from, till = tonumber(from) or 0, tonumber(till) or -1
local emptied = us > till
if emptied then from = us + term end
local used = redis.call('ZCOUNT', key, string.format('(%.0f', us), '+inf') + held
local taken, rest, reset = 0, from - us, 0
if rest <= 0 then
  rest = 0
  if used + n <= limit then
    taken = 1
  else
    local e = redis.call('ZRANGEBYSCORE', key, string.format('(%.0f', us), '+inf', 'WITHSCORES', 'LIMIT', math.max(used + n - limit - 1, 0), 1)[2]
    rest = e and e - us or term
  end
end
local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
if last then reset = math.max(last - us, 0) end
