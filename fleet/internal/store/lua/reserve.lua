-- Grants a tenant that was not known in advance its guarantee out of the group's reserve. KEYS[7] is a sorted
-- set. A member is a grant and the tenant's key, and its score is the millisecond from which the tenant owes
-- nothing. The last member is the sum of all grants. A grant is its units and its rate in hexadecimal: three
-- and seven limbs of 28 bits, the highest first. ARGV[7] is the member, '' to grant nothing, and ARGV[8] is what all
-- grants together may have. ARGV[9] is '1' if the call only looks. ARGV[10] is a time in milliseconds, for
-- which the tenant is about to owe beyond what its word says.
local key, member = KEYS[7], ARGV[7]
local given, looks = redis.call('ZRANGE', key, -1, -1)[1], ARGV[9] == '1'
local function limbs(grant)
  local all = {}
  for i = 1, 10 do all[i] = tonumber(string.sub(grant, 7 * i - 6, 7 * i), 16) end
  return all
end
local sum, most = limbs(given or string.rep('0', 70)), limbs(ARGV[8])
local function add(grant, sign)
  local carry, all = 0, limbs(grant)
  for i = 10, 1, -1 do
    local n = sum[i] + sign * all[i] + carry
    carry = 0
    if i ~= 4 and i ~= 1 then
      carry = math.floor(n / 2^28)
      n = n - carry * 2^28
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
  while not (isWithin(1, 3) and isWithin(4, 10)) do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if not first[1] or first[2] == 'inf' or first[2] + IDLE > us / 1000 then return false end
    redis.call('ZREM', key, first[1])
    add(first[1], -1)
  end
  return true
end
local score = member ~= '' and redis.call('ZSCORE', key, member)
granted = score and 1 or 0
if granted == 0 then
  local asked = member ~= '' and member or string.rep('0', 70)
  add(asked, 1)
  if hasRoom() then granted = 1 end
  if granted == 0 or looks then add(asked, -1) end
  sums = ''
  for i = 1, 10 do sums = sums .. string.format('%07x', sum[i]) end
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
