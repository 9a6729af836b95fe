"""C++ of the host machine, part 2: checked memory and its shadow, mbarriers, threads' copies."""

TEXT = r"""
// ---------------------------------------------------------------- global memory
// The argument that holds [address, address + bytes), or nullptr after a fault.
static u8* reach(const void* address, u32 bytes, u32 align, bool write, const char* what) {
  const u8* p = (const u8*)address;
  static u32 last = 0;
  for (u32 i = 0; i < launch->ranges; i++) {
    u32 r = (last + i) % launch->ranges;
    u8* base = launch->bases[r];
    if (p < base || p >= base + launch->sizes[r]) continue;
    last = r;
    u64 offset = p - base;
    if (offset + bytes > launch->sizes[r]) {
      fault("%s: %u bytes at byte %llu of %s leave its %llu bytes", what, bytes, offset,
            launch->names[r], launch->sizes[r]);
      return nullptr;
    }
    if (offset % align) {
      fault("%s: misaligned, byte %llu of %s is no multiple of %u", what, offset, launch->names[r],
            align);
      return nullptr;
    }
    if (write && !launch->writable[r]) {
      fault("%s: writes %s, which is read only", what, launch->names[r]);
      return nullptr;
    }
    return (u8*)p;
  }
  i64 nearest = 0;
  const char* name = "no argument";
  u64 best = ~0ull;
  for (u32 r = 0; r < launch->ranges; r++) {
    i64 offset = p - launch->bases[r];
    u64 away = offset < 0 ? -offset : offset - launch->sizes[r];
    if (away < best) {
      best = away;
      nearest = offset;
      name = launch->names[r];
    }
  }
  fault("%s: out of bounds, byte %lld from the start of %s", what, nearest, name);
  return nullptr;
}
static void overtime(const char* what) {
  if (clock_now() < deadline) return;
  fault("time limit of %g s is over in %s", launch->limit, what);
  aborted = true;
}
// Lets others run after many reads in a row, in case this thread waits for one of them.
static void take_turns(const char* what) {
  if (++quiet_reads % 65536) return;
  overtime(what);
  block(TURN, what);
}

// ---------------------------------------------------------------- shared memory
static Cta* cta_of(u32 rank, const char* what) {
  if (rank < ctas.size()) return &ctas[rank];
  fault("%s: no CTA of rank %u in a cluster of %zu", what, rank, ctas.size());
  return nullptr;
}
// Offset in the CTA's memory of a shared address, or ~0u after a fault.
static u32 offset_of(const Cta* cta, u32 address, u32 bytes, u32 align, const char* what) {
  u32 offset = (address & ((1u << RANK_SHIFT) - 1)) - WINDOW;
  if ((i32)offset < 0 || offset + bytes > cta->bytes) {
    fault("%s: %u bytes at shared byte %d leave the %u there are", what, bytes, (i32)offset,
          cta->bytes);
    return ~0u;
  }
  if (offset % align) {
    fault("%s: misaligned, shared byte %u is no multiple of %u", what, offset, align);
    return ~0u;
  }
  return offset;
}
static u32 own_offset(u32 address, u32 bytes, u32 align, const char* what) {
  if (address >> RANK_SHIFT != rt_now->cta->rank) {
    fault("%s: shared address %#x is not of this CTA (rank %u)", what, address, rt_now->cta->rank);
    return ~0u;
  }
  return offset_of(rt_now->cta, address, bytes, align, what);
}
static Barrier* over_barrier(Cta* cta, u32 offset, u32 bytes) {
  for (u32 s = offset / 8; s <= (offset + bytes - 1) / 8; s++)
    if (cta->slots[s]) return &cta->barriers[cta->slots[s] - 1];
  return nullptr;
}
static void check_write(Cta* cta, u32 offset, u32 bytes, const char* what) {
  if (Barrier* b = over_barrier(cta, offset, bytes))
    fault("%s: overwrites the mbarrier at shared byte %u", what, b->offset);
  for (u32 g = offset / GRANULE; g <= (offset + bytes - 1) / GRANULE; g++) {
    if (cta->readers[g])
      fault(
          "%s: overwrites shared memory that an unfinished wgmma or bulk store reads (16 bytes at "
          "%u)",
          what, g * GRANULE);
    if (cta->landing[g])
      fault("%s: overwrites shared memory that an unfinished copy writes (16 bytes at %u)", what,
            g * GRANULE);
  }
}
static void check_read(Cta* cta, u32 offset, u32 bytes, const char* what) {
  for (u32 g = offset / GRANULE; g <= (offset + bytes - 1) / GRANULE; g++)
    if (cta->landing[g])
      fault("%s: reads shared memory that an unfinished copy writes (16 bytes at %u)", what,
            g * GRANULE);
}
static void check_proxy(Cta* cta, u32 granule, const char* what) {
  if (cta->unfenced[granule])
    fault("%s: reads shared memory written without tw_fence_async (16 bytes at %u)", what,
          granule * GRANULE);
  if (cta->landing[granule])
    fault("%s: reads shared memory that an unfinished copy writes (16 bytes at %u)", what,
          granule * GRANULE);
}
static void tidy(Fiber* f) {  // each granule once
  std::sort(f->dirty.begin(), f->dirty.end());
  size_t kept = 0;
  for (size_t i = 0; i < f->dirty.size(); i++) {
    if (kept && f->dirty[kept - 1] == f->dirty[i]) f->cta->unfenced[f->dirty[i]]--;
    else f->dirty[kept++] = f->dirty[i];
  }
  f->dirty.resize(kept);
  f->dirty_limit = std::max<size_t>(1024, 2 * kept);
}
static void mark_written(Fiber* f, u32 offset, u32 bytes) {
  for (u32 g = offset / GRANULE; g <= (offset + bytes - 1) / GRANULE; g++) {
    if (!f->dirty.empty() && f->dirty.back() == g) continue;
    f->cta->unfenced[g]++;
    f->dirty.push_back(g);
  }
  if (f->dirty.size() > f->dirty_limit) tidy(f);
}
extern "C" void rt_fence_async() {
  Fiber* f = rt_now;
  for (u32 g : f->dirty) f->cta->unfenced[g]--;
  f->dirty.clear();
}
extern "C" u8* rt_shared_base() { return rt_now->cta->memory; }
extern "C" u32 rt_shared_address(const void* pointer) {
  Cta* cta = rt_now->cta;
  i64 offset = (const u8*)pointer - cta->memory;
  if (offset < 0 || offset > cta->bytes) {
    fault("tw_shared_address: the pointer is not in the block's shared memory");
    offset = 0;
  }
  return (cta->rank << RANK_SHIFT) + WINDOW + (u32)offset;
}
extern "C" void rt_load_shared(const char* what, u32 address, void* to, u32 bytes) {
  u32 offset = own_offset(address, bytes, bytes, what);
  memset(to, 0xff, bytes);
  if (offset == ~0u) return;
  check_read(rt_now->cta, offset, bytes, what);
  touch(rt_now, offset, bytes, false, what);
  memcpy(to, rt_now->cta->memory + offset, bytes);
}
extern "C" void rt_load_cluster(const char* what, u32 address, u32 rank, void* to, u32 bytes) {
  memset(to, 0xff, bytes);
  Cta* cta = cta_of(rank, what);
  if (!cta || own_offset(address, bytes, bytes, what) == ~0u) return;
  if (!cta->alive) {
    fault("%s: CTA rank %u has left the kernel", what, rank);
    return;
  }
  u32 offset = offset_of(cta, address, bytes, bytes, what);
  if (offset == ~0u) return;
  check_read(cta, offset, bytes, what);
  memcpy(to, cta->memory + offset, bytes);
}
extern "C" void rt_store_shared(const char* what, u32 address, const void* from, u32 bytes) {
  u32 offset = own_offset(address, bytes, bytes, what);
  if (offset == ~0u) return;
  check_write(rt_now->cta, offset, bytes, what);
  touch(rt_now, offset, bytes, true, what);
  memcpy(rt_now->cta->memory + offset, from, bytes);
  mark_written(rt_now, offset, bytes);
}
extern "C" void rt_load(const char* what, const void* address, void* to, u32 bytes) {
  take_turns(what);
  if (u8* p = reach(address, bytes, bytes, false, what)) memcpy(to, p, bytes);
  else memset(to, 0xff, bytes);
}
extern "C" void rt_store(const char* what, void* address, const void* from, u32 bytes) {
  if (u8* p = reach(address, bytes, bytes, true, what)) memcpy(p, from, bytes);
}

// ---------------------------------------------------------------- what blocks tell each other
static u32 counted(u64 address) { return *(volatile u32*)address; }
extern "C" void rt_await(const u32* address, u32 least) {
  if (!reach(address, 4, 4, false, "tw_await")) return;
  if (counted((u64)address) < least) block(COUNT, "tw_await", (u64)address, 0, least);
}
extern "C" u32 rt_count(u32* address) {
  if (!reach(address, 4, 4, true, "tw_count")) return 0;
  handover = true;
  return (*address)++;
}
extern "C" void rt_publish(u32* address, u32 value) {
  if (!reach(address, 4, 4, true, "tw_publish")) return;
  handover = true;
  *address = value;
}

// ---------------------------------------------------------------- mbarriers
static const u64 BARRIER_MARK = 0x6d62617272696572ull;
static Barrier* barrier_of(Cta* cta, u32 address, const char* what) {
  u32 offset = offset_of(cta, address, 8, 8, what);
  if (offset == ~0u) return nullptr;
  u16 slot = cta->slots[offset / 8];
  if (!slot) {
    fault("%s: no mbarrier was initialised at shared byte %u of CTA rank %u", what, offset,
          cta->rank);
    return nullptr;
  }
  u64 mark;
  memcpy(&mark, cta->memory + offset, 8);
  if (mark != BARRIER_MARK) {
    fault("%s: the mbarrier at shared byte %u was overwritten", what, offset);
    return nullptr;
  }
  return &cta->barriers[slot - 1];
}
static Barrier* own_barrier(u32 address, const char* what) {
  if (own_offset(address, 8, 8, what) == ~0u) return nullptr;
  return barrier_of(rt_now->cta, address, what);
}
static void settle(Barrier* b) {
  events++;
  if (b->pending || b->expected) return;
  b->phase++;
  b->pending = b->count;
}
static void arrive(Barrier* b, const char* what) {
  if (!b->pending) {
    fault("%s: more arrivals at the mbarrier at shared byte %u than its count of %u", what,
          b->offset, b->count);
    return;
  }
  b->pending--;
}
static void landed(Barrier* b, u32 bytes, const char* what) {
  b->expected -= bytes;
  if (b->expected < -1048575)
    fault("%s: transaction count of the mbarrier at %u underflows", what, b->offset);
  settle(b);
}
extern "C" void rt_barrier_init(u32 address, u32 count) {
  const char* what = "tw_barrier_init";
  rt_now->cta->waits_otherwise = true;
  Cta* cta = rt_now->cta;
  u32 offset = own_offset(address, 8, 8, what);
  if (offset == ~0u) return;
  if (!count || count > 1048575) fault("%s: count %u, legal are 1 to 1048575", what, count);
  if (cta->slots[offset / 8])
    fault("%s: the mbarrier at shared byte %u is initialised twice", what, offset);
  memcpy(cta->memory + offset, &BARRIER_MARK, 8);
  cta->barriers.push_back({offset, count, (i32)count, 0, 0, false});
  cta->slots[offset / 8] = cta->barriers.size();
  events++;
}
extern "C" void rt_fence_barrier_init() {
  for (auto& b : rt_now->cta->barriers) b.fenced = true;
}
extern "C" void rt_barrier_expect(u32 address, u32 bytes) {
  Barrier* b = own_barrier(address, "tw_barrier_expect");
  if (!b) return;
  b->expected += bytes;
  if (b->expected > 1048575)
    fault("tw_barrier_expect: %lld bytes expected, at most 1048575 count", b->expected);
  arrive(b, "tw_barrier_expect");
  settle(b);
}
extern "C" void rt_barrier_arrive(u32 address) {
  Barrier* b = own_barrier(address, "tw_barrier_arrive");
  if (!b) return;
  arrive(b, "tw_barrier_arrive");
  settle(b);
}
extern "C" void rt_barrier_arrive_at(const char* what, u32 address, u32 rank) {
  Cta* cta = cta_of(rank, what);
  if (!cta) return;
  if (!cta->alive) {
    fault("%s: CTA rank %u has left the kernel", what, rank);
    return;
  }
  Barrier* b = barrier_of(cta, address, what);
  if (!b) return;
  if (!b->fenced) fault("%s: the mbarrier at %u lacks tw_fence_barrier_init", what, b->offset);
  arrive(b, what);
  settle(b);
}
static bool passed(const Barrier* b, u32 parity) { return (b->phase & 1) != (parity & 1); }
static bool await(const char* what, Wait wait, u32 address, u32 parity) {
  Barrier* b = own_barrier(address, what);
  if (!b) {
    aborted = true;
    to_main();
  }
  if (parity > 1) fault("%s: parity %u", what, parity);
  u32 index = b - rt_now->cta->barriers.data();
  if (passed(b, parity)) return true;
  block(wait, what, index, address, parity);
  return passed(&rt_now->cta->barriers[index], parity);
}
extern "C" void rt_barrier_wait(const char* what, u32 address, u32 parity) {
  while (!await(what, BARRIER, address, parity)) {}
}
extern "C" int rt_barrier_try(const char* what, u32 address, u32 parity) {
  return await(what, TRY, address, parity);
}

// ---------------------------------------------------------------- cp.async
static void finish_copy(Copy& c) {
  if (c.done) return;
  Cta* cta = rt_now->cta;
  c.done = true;
  memset(cta->memory + c.offset, 0, c.size);
  memcpy(cta->memory + c.offset, c.source, c.valid);
  cta->landing[c.offset / GRANULE] = 0;
}
extern "C" void rt_copy_async(const char* what, u32 destination, const void* source, u32 bytes,
                              u32 size) {
  u32 offset = own_offset(destination, size, size, what);
  if (bytes > size) fault("%s: %u source bytes of %u", what, bytes, size);
  const u8* p = bytes ? reach(source, bytes, 1, false, what) : (const u8*)source;
  if (bytes && p && !reach(source, bytes, size, false, what)) return;
  if (offset == ~0u || !p || bytes > size) return;
  Cta* cta = rt_now->cta;
  check_write(cta, offset, size, what);
  touch(rt_now, offset, size, true, what);
  Copy c = {offset, size, bytes, p, false};
  if (launch->mode & LAZY_LOAD) {
    memset(cta->memory + offset, 0xff, size);
    if (size == GRANULE) cta->landing[offset / GRANULE] = 1;
  } else finish_copy(c);
  rt_now->open_copies.push_back(c);
}
extern "C" void rt_copy_async_commit() {
  rt_now->copies.push_back(std::move(rt_now->open_copies));
  rt_now->open_copies.clear();
}
extern "C" void rt_copy_async_wait(u32 left) {
  auto& groups = rt_now->copies;
  while (groups.size() > left) {
    for (auto& c : groups.front()) {
      finish_copy(c);
      mark_written(rt_now, c.offset, c.size);
    }
    groups.pop_front();
  }
  events++;
}
extern "C" void rt_copy_async_arrive(u32 barrier) {
  rt_copy_async_commit();
  rt_copy_async_wait(0);
  rt_barrier_arrive(barrier);
}
"""
