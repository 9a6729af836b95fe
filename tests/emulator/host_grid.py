"""C++ of the host machine, part 6: clusters that are there at a time, and the grid's order."""

TEXT = r"""
// ---------------------------------------------------------------- clusters that are there
static const size_t MOST_RESIDENT = 6;
struct Resident {  // what belongs to one cluster while another one runs
  size_t slot;
  std::vector<Fiber> fibers;
  std::vector<Cta> ctas;
  std::vector<Warp> warps;
  std::vector<Team> teams;
  std::deque<Load> loads;
  u64 generation = 0, arrivals = 0;
};
static std::vector<Resident> residents;
static void exchange(Resident& r) {  // elements stay where they are: others point to them
  fibers.swap(r.fibers);
  ctas.swap(r.ctas);
  warps.swap(r.warps);
  teams.swap(r.teams);
  loads.swap(r.loads);
  std::swap(cluster_generation, r.generation);
  std::swap(cluster_arrivals, r.arrivals);
}
enum Left { ENDED, PAUSED, STUCK };
// The present cluster, until it ends, is stuck, or has done what another may wait for.
static Left run_cluster() {
  static u64 passes = 0;
  bool any = false;
  while (!aborted) {
    bool moved = false, alive = false;
    handover = false;
    for (size_t i = 0; i < ctas.size() && !handover; i++)
      moved = run_cta(launch->mode & REVERSE ? ctas.size() - 1 - i : i) || moved;
    any = any || moved;
    for (auto& c : ctas) alive = alive || c.alive;
    if (!alive) break;
    if (++passes % 256 == 0) overtime("the kernel");
    if (handover && residents.size() > 1) return PAUSED;
    if (moved || handover || release_load() || poke()) continue;
    for (auto& f : fibers)
      if (!f.done && f.wait == COUNT) return any ? PAUSED : STUCK;
    if (!aborted) report_deadlock();
  }
  return ENDED;
}
static u64 dice;  // the same numbers in every launch
static size_t below(size_t count) {
  dice = dice * 6364136223846793005ull + 1442695040888963407ull;  // D. Knuth's MMIX
  return (dice >> 33) % count;
}
// One cluster that can go on does, whichever the dice choose; whether any did.
static bool run_one(std::vector<size_t>& slots) {
  std::vector<size_t> order;
  for (size_t i = 0; i < residents.size(); i++)
    order.insert(order.begin() + below(order.size() + 1), i);
  for (size_t i : order) {
    exchange(residents[i]);
    Left left = run_cluster();
    exchange(residents[i]);
    if (left == STUCK && !aborted) continue;
    if (left == ENDED) {
      slots.push_back(residents[i].slot);
      residents.erase(residents.begin() + i);
    }
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- launch
static u8* shared_pages(size_t number) {  // 256 KiB of each, the pages around it forbidden
  static std::vector<u8*> pages;
  const size_t size = 256 << 10, guard = 64 << 10;
  while (pages.size() <= number) {
    u8* at = (u8*)mmap(nullptr, size + 2 * guard, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(at + guard, size, PROT_READ | PROT_WRITE);
    pages.push_back(at + guard);
  }
  return pages[number];
}
static void make_cta(size_t slot, u32 rank, Dim block) {
  Cta& c = ctas[rank];
  c = Cta();
  c.block = block;
  c.rank = rank;
  c.memory = shared_pages(slot * ctas.size() + rank);
  c.bytes = launch->shared;
  c.alive = c.threads = launch->block;
  memset(c.memory, 0xff, c.bytes);
  u32 granules = c.bytes / GRANULE + 2;
  c.slots.assign(2 * granules, 0);
  c.unfenced.assign(granules, 0);
  c.readers.assign(granules, 0);
  c.landing.assign(granules, 0);
  c.waits_otherwise = ctas.size() > 1;
}
static void make_threads(size_t slot, u32 rank) {
  u32 per_warps = (launch->block + 31) / 32, per_teams = (launch->block + 127) / 128;
  Dim grid = {launch->grid[0], launch->grid[1], launch->grid[2]}, size = {launch->block, 1, 1};
  for (u32 i = 0; i < launch->block; i++) {
    size_t number = (size_t)rank * launch->block + i;
    Fiber& f = fibers[number];
    f = Fiber();
    f.thread = {i, 0, 0};
    f.block = ctas[rank].block;
    f.grid = grid;
    f.size = size;
    f.stack = stack_of(slot * fibers.size() + number);
    f.cta = &ctas[rank];
    f.index = i;
    f.lane = i % 32;
    f.dirty_limit = 1024;
    f.warp = &warps[rank * per_warps + i / 32];
    f.team = &teams[rank * per_teams + i / 128];
    if (i % 32 == 0) {
      *f.warp = Warp();
      f.warp->cta = f.cta;
      f.warp->index = i / 32;
      f.warp->first = &f;
      f.warp->registers = launch->registers;
    }
    if (i % 128 == 0) {
      *f.team = Team();
      f.team->cta = f.cta;
      f.team->index = i / 128;
    }
    f.warp->full |= 1u << f.lane;
    f.warp->lanes++;
    f.team->threads++;
    prepare(&f);
  }
}
static void launch_cluster(size_t slot, Dim first) {
  const u32* c = launch->cluster;
  u32 count = c[0] * c[1] * c[2];
  ctas.resize(count);
  warps.resize(count * ((launch->block + 31) / 32));
  teams.resize(count * ((launch->block + 127) / 128));
  fibers.resize((size_t)count * launch->block);
  loads.clear();
  cluster_generation = cluster_arrivals = quiet_reads = 0;
  for (u32 r = 0; r < count; r++) {
    make_cta(slot, r, {first.x + r % c[0], first.y + r / c[0] % c[1], first.z + r / (c[0] * c[1])});
    make_threads(slot, r);
  }
}
static bool fits() {
  const u32 *g = launch->grid, *c = launch->cluster;
  u32 count = c[0] * c[1] * c[2];
  if (launch->block < 1 || launch->block > 1024)
    fault("launch: %u threads in a block", launch->block);
  if (launch->shared > 232448)
    fault("launch: %u bytes of shared memory, 232448 are there", launch->shared);
  if (!count || count > 16) fault("launch: a cluster of %u blocks", count);
  for (int d = 0; d < 3; d++)
    if (!g[d] || !c[d] || g[d] % c[d])
      fault("launch: grid (%u,%u,%u) is no multiple of the cluster", g[0], g[1], g[2]);
  return faults.empty();
}
// Clusters start in order. With late stores several are there at a time and run in any order, and
// all of a cooperative launch; otherwise each ends before the next one starts: what waits for a
// later one waits forever.
static void run_grid() {
  const u32 *g = launch->grid, *c = launch->cluster;
  const u64 x = g[0] / c[0], y = g[1] / c[1], total = x * y * (g[2] / c[2]);
  const size_t few = launch->mode & LAZY_STORE ? MOST_RESIDENT : 1;
  const size_t most = launch->cooperative ? total : few;
  std::vector<size_t> slots;
  for (size_t slot = most; slot-- > 0;) slots.push_back(slot);
  u64 next = 0;
  dice = 1;
  residents.clear();
  residents.reserve(most);  // copies of them would lose what points to them
  while (!aborted && (next < total || !residents.empty())) {
    bool started = false;
    for (; next < total && !slots.empty(); next++, started = true) {
      residents.push_back({slots.back()});
      slots.pop_back();
      exchange(residents.back());
      launch_cluster(residents.back().slot, {(u32)(next % x) * c[0], (u32)(next / x % y) * c[1],
                                             (u32)(next / x / y) * c[2]});
      exchange(residents.back());
    }
    bool moved = run_one(slots);
    if (!started && !moved && !aborted) {
      exchange(residents.front());
      report_deadlock();
    }
  }
}
"""
