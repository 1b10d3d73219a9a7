-- Applies one draw to the counter at KEYS[1]: src/store/counter.rs says how, and gives the same
-- answers and the same bytes. ARGV[1] is how long the value is kept, in ms, and the others are the
-- arguments of the draw; from the fifth of them on they are left out where they change nothing. Most
-- of the time of a script goes into the words that come and go, so the answer is six floats in one.
local kept, n = ARGV[1], #ARGV
local bucket, k = tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, firm = tonumber(ARGV[4]), tonumber(ARGV[5])
local soft, divisor, nxt, back_bucket, back, epoch = 0, 1, 0, 0, 0, 0
if n > 5 then
  soft, divisor, nxt = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  back_bucket, back, epoch = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
end
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local b = math.floor(now / bucket)
local left = (b + 1) * bucket - now
local v = redis.call('GET', KEYS[1])
if not v and epoch == 0 and back == 0 and n <= 11 then
  -- Most keys are new, and there is nothing to look at.
  local free, grant, wait = limit, math.min(firm, limit), 0
  if soft > 0 and free > grant then
    grant = grant + math.min(soft, math.ceil((free - grant) / divisor))
  end
  if grant == free then
    local later = k - 1
    if nxt == 1 or limit == 0 then later = k end
    wait = left + later * bucket
  end
  if grant > 0 then
    local new
    if k == 2 and nxt == 0 then
      new = struct.pack('<ddI4I4I4', now, b, 0, grant, 0)
    else
      new = struct.pack('<dd', now, b) .. string.rep('\0', 4 * (k - 1 + nxt)) ..
        struct.pack('<I4', grant) .. string.rep('\0', 4 - 4 * nxt)
    end
    redis.call('SET', KEYS[1], new, 'PX', kept)
  end
  return struct.pack('<dddddd', grant, free - grant, left, b, now, wait)
end
local function whole(x)
  if x >= 0 and x <= 9007199254740992 then return math.floor(x) end
  return 0
end
local counts = '<dd' .. string.rep('I4', k + 1)
local c, e, base, changed = {}, 0, b, false
if v and #v == 20 + 4 * k then
  c = {struct.unpack(counts, v)}
  e, base = whole(c[1]), whole(c[2])
  for i = 1, k + 1 do c[i] = c[i + 2] end
else
  for i = 1, k + 1 do c[i] = 0 end
end
if base > b + 1 then
  local all = 0
  for i = 1, k + 1 do all = all + c[i]; c[i] = 0 end
  c[k] = math.min(all, limit)
  changed = true
elseif base > b then
  b = base
  left = (b + 1) * bucket - now
else
  local gone = b - base
  if gone > 0 then
    for i = 1, k + 1 do c[i] = i + gone <= k + 1 and c[i + gone] or 0 end
  end
end
if epoch ~= 0 and epoch ~= e then return struct.pack('<dddddd', -1, 0, left, b, e, 0) end
if e == 0 then e = now end
local function book(of, n, sign)
  local i = of - b + k
  if n > 0 and i >= 1 and i <= k + 1 then
    c[i] = math.max(0, math.min(c[i] + sign * n, 4294967295))
    changed = true
  end
end
book(back_bucket, back, -1)
for i = 12, n - 1, 2 do book(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), 1) end
local function sum(from, to)
  local all = 0
  for i = from, to do all = all + c[i] end
  return all
end
local held
if nxt == 1 then held = sum(2, k + 1)
elseif k == 1 then held = c[1]
else held = math.max(sum(1, k), sum(2, k + 1)) end
local free = math.max(0, limit - held)
local grant = math.min(firm, free)
if soft > 0 and free > grant then
  grant = grant + math.min(soft, math.ceil((free - grant) / divisor))
end
if grant > 0 then
  local i = k + nxt
  c[i] = math.min(c[i] + grant, 4294967295)
  changed = true
end
local wait = 0
if grant < firm or grant == free then
  local later = k
  for from = 2, k + 1 do
    if sum(from, k + 1) < limit then later = from - 2; break end
  end
  wait = left + later * bucket
end
if changed then
  local new = struct.pack(counts, e, b, unpack(c, 1, k + 1))
  redis.call('SET', KEYS[1], new, 'PX', kept)
end
return struct.pack('<dddddd', grant, free - grant, left, b, e, wait)
