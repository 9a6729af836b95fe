"""C++ of the host machine, part 3: bulk tensor copies and the order in which they complete."""

TEXT = r"""
// ---------------------------------------------------------------- boxes
static u32 swizzled(u32 address, u32 swizzle) {  // swizzle: 0, 32, 64 or 128 bytes
  u32 mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return address ^ ((address >> 7 & mask) << 4);
}
static u32 line_bytes(const Map& m) { return m.box[0] * m.width; }
static u32 pitch(const Map& m) { return std::max<u32>(line_bytes(m), m.swizzle); }
static u32 lines(const Map& m) {
  u32 count = 1;
  for (int d = 1; d < m.rank; d++) count *= m.box[d];
  return count;
}
static u32 footprint(const Map& m) { return pitch(m) * lines(m); }
// f(global bytes or nullptr, how many of 16 are inside, shared offset) for all 16 bytes of a box.
template <typename F>
static void for_chunks(const Map& m, const i32* at, u32 offset, F f) {
  u32 count = lines(m), chunks = line_bytes(m) / GRANULE, step = pitch(m);
  for (u32 line = 0; line < count; line++) {
    u8* row = m.base;
    bool inside = true;
    u32 rest = line;
    for (int d = 1; d < m.rank; d++) {
      i64 c = (i64)at[d] + rest % m.box[d];
      rest /= m.box[d];
      inside = inside && c >= 0 && c < (i64)m.dims[d];
      row += c * (i64)m.strides[d - 1];
    }
    for (u32 k = 0; k < chunks; k++) {
      i64 first = (i64)at[0] * m.width + k * GRANULE, end = (i64)m.dims[0] * m.width;
      i64 valid = !inside || first < 0 ? 0 : std::min<i64>(GRANULE, std::max<i64>(0, end - first));
      u32 to = swizzled(offset + WINDOW + line * step + k * GRANULE, m.swizzle) - WINDOW;
      f(valid ? row + first : nullptr, (u32)valid, to);
    }
  }
}
extern "C" void rt_grid_launch() {
  if (!rt_now->waited) fault("tw_grid_launch: tw_grid_wait has to come first");
}
extern "C" void rt_grid_wait() { rt_now->waited = true; }
// What reads or writes global memory must come after the kernel before this one.
static void after_kernel_before(const char* what) {
  if (launch->early && !rt_now->waited) fault("%s: tw_grid_wait has to come first", what);
}
// The map, or false after a fault.
static bool read_map(Map* to, const void* map, u32 rank, const i32* at, const char* what) {
  memcpy(to, map, sizeof *to);
  if (to->magic != MAP_MAGIC) {
    fault("%s: the map is no tensor map", what);
    return false;
  }
  if (to->rank != rank) {
    fault("%s: the map has rank %u", what, to->rank);
    return false;
  }
  if ((i64)at[0] * to->width % GRANULE) {
    fault("%s: innermost coordinate %d of %u-byte elements is not on 16 bytes", what, at[0],
          to->width);
    return false;
  }
  return true;
}
static bool box_there(const Cta* cta, const Map& m, u32 offset, const char* what) {
  if ((u64)offset + footprint(m) <= cta->bytes) return true;
  fault("%s: a box of %u bytes at shared byte %u leaves the %u there are", what, footprint(m),
        offset, cta->bytes);
  return false;
}

// ---------------------------------------------------------------- loads
struct Load {
  Map map;
  i32 at[5];
  u32 offset, barrier, rank;
  const char* what;
};
static std::deque<Load> loads;  // issued, not yet landed

static void land(const Load& l) {
  Cta* cta = &ctas[l.rank];
  for_chunks(l.map, l.at, l.offset, [&](u8* from, u32 valid, u32 to) {
    memset(cta->memory + to, 0, GRANULE);
    if (valid) memcpy(cta->memory + to, from, valid);
    cta->landing[to / GRANULE] = 0;
  });
  if (Barrier* b = barrier_of(cta, l.barrier, l.what))
    landed(b, line_bytes(l.map) * lines(l.map), l.what);
}
static void issue(const Load& l) {
  Cta* cta = &ctas[l.rank];
  if (!cta->alive) {
    fault("%s: CTA rank %u has left the kernel", l.what, l.rank);
    return;
  }
  if (!box_there(cta, l.map, l.offset, l.what)) return;
  Barrier* b = barrier_of(cta, l.barrier, l.what);
  if (!b) return;
  if (!b->fenced) fault("%s: the mbarrier at %u lacks tw_fence_barrier_init", l.what, b->offset);
  bool lazy = launch->mode & LAZY_LOAD;
  for_chunks(l.map, l.at, l.offset, [&](u8*, u32, u32 to) {
    check_write(cta, to, GRANULE, l.what);
    if (cta->unfenced[to / GRANULE])
      fault("%s: overwrites shared memory written without tw_fence_async (16 bytes at %u)", l.what,
            to);
    if (!lazy) return;
    memset(cta->memory + to, 0xff, GRANULE);
    cta->landing[to / GRANULE] = 1;
  });
  if (lazy) loads.push_back(l);
  else land(l);
}
extern "C" void rt_tma_load(const char* what, u32 destination, const void* map, u32 barrier,
                            u32 mask, u32 rank, const i32* at) {
  Load l;
  l.what = what;
  l.barrier = barrier;
  memset(l.at, 0, sizeof l.at);
  memcpy(l.at, at, rank * sizeof *at);
  after_kernel_before(what);
  if (!read_map(&l.map, map, rank, at, what)) return;
  l.offset = own_offset(destination, GRANULE, 128, what);
  if (l.offset == ~0u) return;
  u32 own = rt_now->cta->rank;
  if (mask == 0 || mask >> ctas.size()) {
    if (mask) fault("%s: mask %#x names CTAs beyond the cluster of %zu", what, mask, ctas.size());
    if (mask) return;
    mask = 1u << own;
  }
  for (u32 r = 0; r < ctas.size(); r++)
    if (mask >> r & 1) {
      l.rank = r;
      issue(l);
    }
}
// Everybody is stuck: one load lands.
static bool release_load() {
  if (loads.empty()) return false;
  bool last = launch->mode & REVERSE;
  Load l = last ? loads.back() : loads.front();
  if (last) loads.pop_back();
  else loads.pop_front();
  land(l);
  return true;
}

// ---------------------------------------------------------------- stores
static f32 half_value(u16 bits);
static u16 half_bits(f32 value);
static f32 brain_value(u16 bits);
static u16 brain_bits(f32 value);

template <typename T>
static void add_as(u8* to, const u8* from) {
  T a, b;
  memcpy(&a, to, sizeof a);
  memcpy(&b, from, sizeof b);
  a += b;
  memcpy(to, &a, sizeof a);
}
static void add_element(const Map& m, u8* to, const u8* from) {
  u16 a, b;
  memcpy(&a, to, 2);
  memcpy(&b, from, 2);
  switch (m.kind) {
    case 'f': return add_as<f32>(to, from);
    case 'i': return m.width == 8 ? add_as<u64>(to, from) : add_as<u32>(to, from);
    case 'h': a = half_bits(half_value(a) + half_value(b)); break;
    case 'b': a = brain_bits(brain_value(a) + brain_value(b)); break;
  }
  memcpy(to, &a, 2);
}
static void mark_readers(Cta* cta, const Store& s, int by) {
  for_chunks(s.map, s.at, s.offset,
             [&](u8*, u32, u32 from) { cta->readers[from / GRANULE] += by; });
}
static void take(Store& s, Cta* cta) {  // reads shared memory
  s.bytes.clear();
  for_chunks(s.map, s.at, s.offset, [&](u8*, u32 valid, u32 from) {
    s.bytes.insert(s.bytes.end(), cta->memory + from, cta->memory + from + (valid ? GRANULE : 0));
  });
}
static void put(Store& s) {  // writes global memory
  const u8* from = s.bytes.data();
  for_chunks(s.map, s.at, s.offset, [&](u8* to, u32 valid, u32) {
    if (!valid) return;
    if (!s.add) memcpy(to, from, valid);
    else
      for (u32 e = 0; e < valid; e += s.map.width) add_element(s.map, to + e, from + e);
    from += GRANULE;
  });
  s.written = true;
}
extern "C" void rt_tma_store(const char* what, const void* map, u32 source, u32 rank, const i32* at,
                             int add) {
  Store s;
  s.add = add;
  s.read = s.written = false;
  memset(s.at, 0, sizeof s.at);
  memcpy(s.at, at, rank * sizeof *at);
  after_kernel_before(what);
  if (!read_map(&s.map, map, rank, at, what)) return;
  if (add && !strchr("fihb", s.map.kind)) {
    fault("%s: elements of this map cannot be added", what);
    return;
  }
  Cta* cta = rt_now->cta;
  s.offset = own_offset(source, GRANULE, 128, what);
  if (s.offset == ~0u || !box_there(cta, s.map, s.offset, what)) return;
  if (!reach(s.map.base, 1, 1, true, what)) return;
  for_chunks(s.map, s.at, s.offset,
             [&](u8*, u32, u32 from) { check_proxy(cta, from / GRANULE, what); });
  mark_readers(cta, s, 1);
  if (!(launch->mode & LAZY_STORE)) {
    take(s, cta);
    put(s);
  }
  rt_now->open_stores.push_back(std::move(s));
}
extern "C" void rt_store_commit() {
  rt_now->stores.push_back(std::move(rt_now->open_stores));
  rt_now->open_stores.clear();
}
static void read_done(Store& s) {
  if (s.read) return;
  if (!s.written) take(s, rt_now->cta);
  mark_readers(rt_now->cta, s, -1);
  s.read = true;
}
extern "C" void rt_store_wait(u32 left, int whole) {
  auto& groups = rt_now->stores;
  for (size_t g = 0; g + left < groups.size(); g++)
    for (auto& s : groups[g]) {
      read_done(s);
      if (whole && !s.written) put(s);
    }
  while (whole && groups.size() > left) groups.pop_front();
  events++;
}
extern "C" void rt_prefetch_map(const void* map) {
  Map m;
  memcpy(&m, map, sizeof m);
  if (m.magic != MAP_MAGIC) fault("tw_prefetch_map: no tensor map");
}
"""
