-- Says that the process ARGV[1] is alive, or leaves. KEYS[1]: those that are alive, by when they
-- said so; KEYS[2]: since when the store has its data.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now, ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 1000000)
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
local rank = redis.call('ZRANK', KEYS[1], ARGV[1])
return {redis.call('ZCARD', KEYS[1]), rank or 0, tonumber(redis.call('GET', KEYS[2])) or 0}
