-- Renews the mark, or sets it. It replies which process of Redis this is, or nothing if that is
-- forbidden.
local markKey, term = KEYS[1], ARGV[1] + 0
local from, till = string.match(redis.call('GET', markKey) or '', '^(%d+) (%d+)$')
from = tonumber(from) or 0
if us > (tonumber(till) or -1) then from = us + term end
MARK
return RUN
