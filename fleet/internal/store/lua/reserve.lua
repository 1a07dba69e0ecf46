-- Grants a tenant that was not known in advance its guarantee out of the group's reserve. KEYS[7] is a sorted
-- set. A member is a grant's figures and the tenant's key, and its score is the millisecond from which the
-- tenant owes nothing. The last member is the sum of all figures. Figures are limbs of 40 bits, the highest
-- first: two of units, and four of a rate. ARGV[7] is the member, '' to grant nothing, and ARGV[8] is what all
-- grants together may have. ARGV[9] is '1' if the call only looks. ARGV[10] is a time in milliseconds, for
-- which the tenant is about to owe beyond what its word says.
local key, member = KEYS[7], ARGV[7]
local given, looks = redis.call('ZRANGE', key, -1, -1)[1], ARGV[9] == '1'
local sum, most = {0, 0, 0, 0, 0, 0}, {struct.unpack('<dddddd', ARGV[8])}
if given then sum = {struct.unpack('<dddddd', given)} end
local function add(figures, sign)
  local carry = 0
  for i = 6, 1, -1 do
    local n = sum[i] + sign * figures[i] + carry
    carry = 0
    if i ~= 3 and i ~= 1 then
      carry = math.floor(n / 2^40)
      n = n - carry * 2^40
    end
    sum[i] = n
  end
end
local function isWithin(from, to)
  for i = from, to do
    if sum[i] ~= most[i] then return sum[i] < most[i] end
  end
  return true
end
-- A tenant that has owed nothing for a while makes room for another, the one that has for longest first.
local function hasRoom()
  while not (isWithin(1, 2) and isWithin(3, 6)) do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if not first[1] or first[2] == 'inf' or first[2] + IDLE > us / 1000 then return false end
    redis.call('ZREM', key, first[1])
    add({struct.unpack('<dddddd', first[1])}, -1)
  end
  return true
end
local score = member ~= '' and redis.call('ZSCORE', key, member)
granted = score and 1 or 0
if granted == 0 then
  local figures = {0, 0, 0, 0, 0, 0}
  if member ~= '' then figures = {struct.unpack('<dddddd', member)} end
  add(figures, 1)
  if hasRoom() then granted = 1 end
  if granted == 0 or looks then add(figures, -1) end
  sums = struct.pack('<dddddd', unpack(sum))
  if sums ~= given and (given or granted == 1 and member ~= '' and not looks) then
    if given then redis.call('ZREM', key, given) end
    redis.call('ZADD', key, 'inf', sums)
  end
else
  sums = given
end
if member ~= '' and granted == 0 then
  -- The tenant has no funnel of its own.
  ARGV[2], ARGV[6] = '', ''
elseif member ~= '' and not looks then
  -- owes has the tenant stay in the reserve for as long as its word h, l means anything.
  owes = function(h, l)
    local now, more = math.ceil(us / 1000), ARGV[10] + 0
    local ms = math.ceil((h * 125 + math.ceil(l / 8e6)) / 2) -- 16e6 ticks a millisecond
    if more > 0 or not score then ms = math.max(ms, now) + more end
    if not score or score + 0 < ms then
      redis.call('ZADD', key, ms, member)
      ms = math.max(redis.call('ZRANGE', key, -2, -2, 'WITHSCORES')[2], now) + IDLE
      redis.call(LIFE)
    end
  end
end
