-- Says that the process ARGV[1], a name and the settings of `Alive::settings` behind a colon, is
-- alive, which has seen the count ARGV[3]. ARGV[2] is 1 if it leaves, and 2 if a key was reset, which
-- is said in the name of none that is alive. KEYS[1]: those that are alive, by when they said so;
-- KEYS[2]: since when the store has its data; KEYS[3]: how many beats it has counted, as
-- `Alive::count` says in src/store/beat.rs; KEYS[4]: how many of them have told of a reset.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if ARGV[2] == '0' then
  redis.call('ZADD', KEYS[1], now, ARGV[1])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 1000000)
local epoch = tonumber(redis.call('GET', KEYS[2])) or 0
local count = tonumber(redis.call('GET', KEYS[3])) or 0
local seen = tonumber(ARGV[3])
if epoch == 0 or count < seen then
  epoch = math.max(now, epoch + 1)
  redis.call('SET', KEYS[2], string.format('%.0f', epoch))
end
count = math.max(count, seen) + 1
redis.call('SET', KEYS[3], string.format('%.0f', count))
local resets = tonumber(redis.call('GET', KEYS[4])) or 0
if ARGV[2] == '2' then
  resets = resets + 1
  redis.call('SET', KEYS[4], string.format('%.0f', resets))
end
local nodes = redis.call('ZCARD', KEYS[1])
local rank, other_secrets, other_nodes = 0, 0, 0
local _, _, own_secret, own_nodes = string.find(ARGV[1], ':(%x+):(%d+)$')
if nodes <= 256 then
  -- By name: by time, each would be the last one whenever it asks.
  for _, other in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if other < ARGV[1] then rank = rank + 1 end
    local at, _, secret, number = string.find(other, ':(%x+):(%d+)$')
    if at and secret ~= own_secret then other_secrets = other_secrets + 1 end
    if at and number ~= own_nodes then other_nodes = other_nodes + 1 end
  end
else
  rank = redis.call('ZRANK', KEYS[1], ARGV[1]) or 0
end
return {nodes, rank, epoch, count, other_secrets, other_nodes, resets}
