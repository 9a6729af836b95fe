"""C++ of the host machine, part 5: barriers of threads, registers, exit, scheduling."""

TEXT = r"""
// ---------------------------------------------------------------- blocks and clusters
static u32 still(const Cta* cta) { return cta->alive; }
static void named_done(Named& n) {
  n.arrived = n.wanted = 0;
  n.generation++;
  events++;
}
static void named(const char* what, u32 id, u32 threads, bool wait) {
  Cta* cta = rt_now->cta;
  Named& n = cta->named[id];
  if (n.arrived && n.wanted != threads)
    fault("%s(%u, %u): others gave %u threads", what, id, threads, n.wanted);
  u64 generation = n.generation;
  n.wanted = threads;
  if (++n.arrived >= (id ? threads : still(cta))) named_done(n);
  else if (wait) block(NAMED, what, generation, id, threads);
}
extern "C" void rt_sync() { named("tw_sync", 0, 0, true); }
extern "C" void rt_group(const char* what, u32 id, u32 threads, int wait) {
  if (id < 1 || id > 15 || threads % 32 || !threads || threads > rt_now->cta->threads) {
    fault("%s(%u, %u): legal are ids 1 to 15 and multiples of 32 threads up to %u", what, id,
          threads, rt_now->cta->threads);
    return;
  }
  rt_now->cta->waits_otherwise = true;
  named(what, id, threads, wait);
}
static u64 cluster_alive() {
  u64 count = 0;
  for (auto& c : ctas) count += c.alive;
  return count;
}
static void cluster_check() {
  if (!cluster_arrivals || cluster_arrivals < cluster_alive()) return;
  cluster_arrivals = 0;
  cluster_generation++;
  events++;
}
extern "C" void rt_cluster_arrive() {
  Fiber* f = rt_now;
  if (f->cluster_arrived) fault("tw_cluster_arrive: arrives again before tw_cluster_wait");
  f->cluster_arrived = true;
  f->cluster_phase = cluster_generation;
  cluster_arrivals++;
  cluster_check();
}
extern "C" void rt_cluster_wait() {
  Fiber* f = rt_now;
  if (!f->cluster_arrived) {
    fault("tw_cluster_wait: without tw_cluster_arrive");
    return;
  }
  f->cluster_arrived = false;
  if (cluster_generation == f->cluster_phase) block(CLUSTER, "tw_cluster_wait", f->cluster_phase);
}
extern "C" u32 rt_cluster_rank() { return rt_now->cta->rank; }

extern "C" void rt_complain(const char* what) { fault("%s", what); }

// ---------------------------------------------------------------- register pool
extern "C" void rt_registers(const char* what, u32 count, int up) {
  if (!meet(what, nullptr)) return;
  Warp* w = rt_now->warp;
  Cta* cta = w->cta;
  if (count < 24 || count > 256 || count % 8)
    fault("%s<%u>: legal are multiples of 8 from 24 to 256", what, count);
  if (launch->exact && (up ? count < w->registers : count > w->registers))
    fault("%s<%u>: the warp has %u registers", what, count, w->registers);
  if (count <= w->registers) cta->free_registers += 32 * (w->registers - count);
  else {
    u32 more = 32 * (count - w->registers);
    while (cta->free_registers < more) block(REGISTERS, what, more, count);
    cta->free_registers -= more;
  }
  w->registers = count;
  part();
}

// ---------------------------------------------------------------- the end of a thread
static void leave() {
  Fiber* f = rt_now;
  Cta* cta = f->cta;
  if (!f->open_stores.empty()) fault("exit: bulk stores without tw_store_commit");
  for (auto& group : f->stores)
    for (auto& s : group) {
      if (!s.read) {
        fault("exit: bulk stores not waited for (tw_store_wait or tw_store_wait_read)");
        read_done(s);
      }
      if (!s.written) put(s);
    }
  if (!f->open_copies.empty() || !f->copies.empty()) fault("exit: cp.async not waited for");
  if (f->issued > (f->committed ? f->team->ends[f->committed - 1] : 0))
    fault("exit: wgmma without tw_wgmma_commit");
  if (f->committed && f->team->retired < f->team->ends[f->committed - 1])
    fault("exit: wgmma not waited for");
  rt_fence_async();
  if (f->cluster_arrived && f->cluster_phase == cluster_generation) cluster_arrivals--;
  f->warp->gone |= 1u << f->lane;
  if (f->warp->mask)
    fault("exit: leaves while lanes %#x of the warp are in %s", f->warp->mask, f->warp->name);
  if (!--cta->alive) {
    report_race(cta);
    for (auto& l : loads)
      if (l.rank == cta->rank) {
        fault("exit: %s still writes to the block's shared memory", l.what);
        break;
      }
    for (auto it = loads.begin(); it != loads.end();)
      it = it->rank == cta->rank ? loads.erase(it) : it + 1;
  }
  if (cta->named[0].arrived && cta->named[0].arrived >= still(cta)) named_done(cta->named[0]);
  cluster_check();
}

// ---------------------------------------------------------------- scheduling
static bool ready(Fiber* f) {
  switch (f->wait) {
    case MEETING: return f->warp->generation != f->token;
    case BARRIER: return passed(&f->cta->barriers[f->token], f->parity);
    case TRY: return f->poked || passed(&f->cta->barriers[f->token], f->parity);
    case NAMED: return f->cta->named[f->address].generation != f->token;
    case CLUSTER: return cluster_generation != f->token;
    case MATRIX: return f->team->full >= f->token;
    case REGISTERS: return f->cta->free_registers >= f->token;
    case COUNT: return counted(f->token) >= f->parity;
    case RUNNING:
    case TURN: return true;
  }
  return true;
}
static bool run_warp(Warp* w) {  // its lanes, until all wait
  bool moved = false, again = true;
  while (again && !aborted && !handover) {
    again = false;
    for (u32 i = 0; i < w->lanes && !aborted && !handover; i++) {
      Fiber* f = w->first + (launch->mode & REVERSE ? w->lanes - 1 - i : i);
      if (f->done || !ready(f)) continue;
      bool turn = f->wait == TURN;
      to_fiber(f);
      moved = true;
      if (!turn && f->wait != TURN) again = true;
    }
  }
  return moved;
}
static bool run_cta(size_t index) {
  bool moved = false, again = true;
  size_t per = warps.size() / ctas.size();
  while (again && !aborted && !handover) {
    again = false;
    for (size_t i = 0; i < per && !aborted && !handover; i++) {
      size_t w = index * per + (launch->mode & REVERSE ? per - 1 - i : i);
      again = run_warp(&warps[w]) || again;
    }
    moved = moved || again;
    if (again && ctas.size() > 1 && quiet_reads > 65536) break;
  }
  return moved;
}
static bool poke() {  // barrier tries come back with false once nothing else can happen
  static u64 last_events;
  if (last_events == events) return false;
  last_events = events;
  bool any = false;
  for (auto& f : fibers)
    if (!f.done && f.wait == TRY) any = f.poked = true;
  return any;
}
static std::string barrier_words(const Fiber& f) {
  const Barrier& b = f.cta->barriers[f.token];
  char text[200];
  snprintf(text, sizeof text,
           "(barrier at shared byte %u, parity %u): phase %llu, %d of %u arrivals and %lld bytes "
           "to come",
           b.offset, f.parity, b.phase, b.pending, b.count, b.expected);
  return text;
}
static std::string waiting_words(const Fiber& f) {
  char text[200] = "";
  if (f.wait == BARRIER || f.wait == TRY) return f.where + barrier_words(f);
  if (f.wait == NAMED)
    snprintf(text, sizeof text, "(%u, %u): %u arrived", f.address, f.parity,
             f.cta->named[f.address].arrived);
  if (f.wait == CLUSTER)
    snprintf(text, sizeof text, ": %llu of %llu arrived", cluster_arrivals, cluster_alive());
  if (f.wait == REGISTERS)
    snprintf(text, sizeof text, "<%u>: needs %llu registers of a pool that has %u", f.address,
             f.token, f.cta->free_registers);
  if (f.wait == MATRIX)
    snprintf(text, sizeof text, ": %llu of %llu wgmma issued by the whole group", f.team->full,
             f.token);
  if (f.wait == COUNT)
    snprintf(text, sizeof text, ": %u of %u counted, and no block that runs goes on",
             counted(f.token), f.parity);
  if (f.wait == MEETING) snprintf(text, sizeof text, ": lanes %#x are there", f.warp->mask);
  return std::string(f.where) + text;
}
struct Waiters {
  std::string words;
  std::vector<u32> warps;
};  // number of a warp in the cluster
static std::string warps_words(const std::vector<u32>& list) {  // "cta 0 warps 4-7"
  std::string words;
  u32 per = warps.size() / ctas.size();
  for (size_t i = 0; i < list.size();) {
    size_t end = i + 1;
    while (end < list.size() && list[end] == list[end - 1] + 1 && list[end] / per == list[i] / per)
      end++;
    char text[64];
    u32 first = list[i] % per, last = list[end - 1] % per;
    snprintf(text, sizeof text, first == last ? " cta %u warp %u," : " cta %u warps %u-%u,",
             list[i] / per, first, last);
    words += text;
    i = end;
  }
  words.pop_back();
  return words;
}
static void report_deadlock() {
  std::vector<Waiters> seen;
  for (auto& f : fibers) {
    if (f.done) continue;
    std::string words = waiting_words(f);
    size_t i = 0;
    while (i < seen.size() && seen[i].words != words) i++;
    if (i == seen.size()) seen.push_back({words, {}});
    u32 number = f.warp - warps.data();
    if (seen[i].warps.empty() || seen[i].warps.back() != number) seen[i].warps.push_back(number);
  }
  std::string body = "deadlock:";
  for (auto& s : seen) body += warps_words(s.warps) + " in " + s.words + ";";
  body.pop_back();
  const Dim& b = ctas[0].block;
  char where[160];
  snprintf(where, sizeof where, "%s: cluster of block (%u,%u,%u)", launch->name, b.x, b.y, b.z);
  fault_text("deadlock", body, where);
  aborted = true;
}
"""
