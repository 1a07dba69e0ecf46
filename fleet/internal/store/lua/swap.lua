-- Puts the word ARGV[2] in place of ARGV[1], if that is what is there. No word is ''.
local w = redis.call('GET', key)
if not w or w == '0' then w = '' end
if w ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', key)
else
  local ms = ARGV[3] + 0
  redis.call('SET', key, ARGV[2], EXPIRY)
end
return 1
