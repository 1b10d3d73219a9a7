-- Applies one draw to the counter at KEYS[1]: src/store/counter.rs says how, and gives the same
-- answers and the same bytes.
local a = {}
for i = 1, #ARGV do a[i] = tonumber(ARGV[i]) end
local bucket, k, limit, firm, soft = a[1], a[2], a[3], a[4], a[5]
local divisor, nxt, back_bucket, back, epoch = a[6], a[7], a[8], a[9], a[10]
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local b = math.floor(now / bucket)
local v = redis.call('GET', KEYS[1])
local function whole(x)
  if x >= 0 and x <= 9007199254740992 then return math.floor(x) end
  return 0
end
local c, e, base, changed = {}, 0, b, false
if v and #v == 20 + 4 * k then
  e = whole(struct.unpack('<d', v))
  base = whole(struct.unpack('<d', v, 9))
  for i = 1, k + 1 do c[i] = struct.unpack('<I4', v, 13 + 4 * i) end
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
else
  local gone = b - base
  if gone > 0 then
    for i = 1, k + 1 do c[i] = c[i + gone] or 0 end
  end
end
local left = (b + 1) * bucket - now
if epoch ~= 0 and epoch ~= e then return {-1, 0, left, b, e, 0} end
if e == 0 then e = now end
local function book(of, n, sign)
  local i = of - b + k
  if n > 0 and i >= 1 and i <= k + 1 then
    c[i] = math.max(0, math.min(c[i] + sign * n, 4294967295))
    changed = true
  end
end
book(back_bucket, back, -1)
for i = 11, #a - 1, 2 do book(a[i], a[i + 1], 1) end
local function sum(from, to)
  local all = 0
  for i = from, to do all = all + c[i] end
  return all
end
local held
if nxt == 1 then held = sum(2, k + 1)
elseif k == 1 then held = sum(1, 1)
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
  local out = {struct.pack('<dd', e, b)}
  for i = 1, k + 1 do out[i + 1] = struct.pack('<I4', c[i]) end
  redis.call('SET', KEYS[1], table.concat(out), 'PX', math.ceil((k + 2) * bucket / 1000))
end
return {grant, free - grant, left, b, e, wait}
