"""C++ of the host machine, part 1: CUDA threads as fibers, who waits for what, faults, deadlocks.

Compiled once and cached; kernels reach it through the `rt_` functions that host.py declares.
"""

TEXT = r"""
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>
#include <sys/mman.h>
#if defined(__x86_64__) && !defined(RT_PORTABLE)
#define RT_SWITCH
#else
#include <ucontext.h>
#endif
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;

static const u32 WINDOW = 1024;  // the first bytes of a CTA's shared window are the system's
static const u32 RANK_SHIFT = 24;
static const u32 GRANULE = 16;
static const size_t STACK = 128 << 10, GUARDED = 16384, LOT = 1024;
static const size_t MOST_FAULTS = 24;

enum Wait { RUNNING, MEETING, BARRIER, TRY, NAMED, CLUSTER, MATRIX, REGISTERS, TURN, COUNT };
enum Mode { LAZY_MATRIX = 1, LAZY_LOAD = 2, LAZY_STORE = 4, REVERSE = 8 };

struct Dim {
  u32 x, y, z;
};
struct Cta;
struct Warp;
struct Team;

// What a tensor map's 128 bytes hold on the host.
struct Map {
  u8* base;
  u8 rank, width, swizzle, kind;
  u32 magic;
  u64 dims[5];
  u64 strides[4];
  u16 box[5];
};
static const u32 MAP_MAGIC = 0x74776d70;

struct Store {  // one bulk store
  Map map;
  u32 offset;
  i32 at[5];
  bool add, read, written;
  std::vector<u8> bytes;
};
struct Copy {  // one cp.async
  u32 offset, size, valid;
  const u8* source;
  bool done;
};

struct Fiber {
  Dim thread, block, grid, size;  // kernels read these four: keep them first
  void* saved;
  u8* stack;
#if !defined(RT_SWITCH)
  ucontext_t context;
#endif
  Cta* cta;
  Warp* warp;
  Team* team;
  u32 index, lane;
  bool done, poked;
  Wait wait;
  u32 address, parity;
  u64 token;
  const char* where;
  u64 issued, committed;
  bool fenced, ordered, cluster_arrived;
  bool waited;  // for the kernel before this one
  u64 cluster_phase;
  std::vector<Store> open_stores;
  std::deque<std::vector<Store>> stores;
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> copies;
  std::vector<u32> dirty;
  size_t dirty_limit;
};
struct Warp {
  Cta* cta;
  Fiber* first;
  u32 index, lanes, full, mask, gone;
  u64 generation;
  const char* name;
  void* arguments[32];
  u32 registers;
};
struct Barrier {
  u32 offset;
  u32 count;
  i32 pending;
  i64 expected;
  u64 phase;
  bool fenced;
};
struct Named {
  u32 arrived, wanted;
  u64 generation;
};
struct Touch {  // of a byte: barriers passed, and by whom
  u32 written, read;
  u16 writer, reader;
};
struct Cta {
  Dim block;
  u32 rank;
  u8* memory;
  u32 bytes;
  u32 alive, threads;
  std::vector<u16> slots;
  std::vector<Barrier> barriers;
  std::vector<u16> unfenced, readers;
  std::vector<u8> landing;
  std::vector<Touch> touched;
  std::string race;
  bool waits_otherwise;
  Named named[16];
  u32 free_registers;
  bool pooled;
};
struct Launch {
  const char* name;
  void (*entry)(void**);
  void** parameters;
  u32 grid[3], cluster[3];
  u32 block, shared, registers, mode, exact, early, cooperative;
  double limit;
  u8** bases;
  u64* sizes;
  u8* writable;
  const char** names;
  u32 ranges;
  char* report;
  u64 report_bytes;
};

static const Launch* launch;
static std::vector<Fiber> fibers;
static std::vector<Cta> ctas;
static std::vector<Warp> warps;
static std::vector<Team> teams;
static std::vector<std::string> faults;
static std::vector<std::pair<const char*, std::string>> kinds;
static u64 cluster_generation, cluster_arrivals, events, quiet_reads;
static bool aborted;
static bool handover;  // something that other clusters wait for has happened
static double deadline;
static void* main_saved;
#if !defined(RT_SWITCH)
static ucontext_t main_context;
#endif
extern "C" {
Fiber* rt_now;
}

// ---------------------------------------------------------------- faults
static std::string place(const Fiber* f) {
  char text[160];
  snprintf(text, sizeof text, "%s: block (%u,%u,%u) thread %u", launch->name, f->block.x,
           f->block.y, f->block.z, f->index);
  return text;
}
// One text of each kind: of a wrapper and a format.
static void fault_text(const char* format, const std::string& body, const std::string& where) {
  std::pair<const char*, std::string> kind(format, body.substr(0, body.find(':')));
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  kinds.push_back(kind);
  if (faults.size() < MOST_FAULTS) faults.push_back(body + " [" + where + "]");
  else aborted = true;
}
__attribute__((format(printf, 1, 2))) static void fault(const char* format, ...) {
  char text[600];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fault_text(format, text, rt_now ? place(rt_now) : launch->name);
}
static double clock_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// ---------------------------------------------------------------- fibers
#if defined(RT_SWITCH)
extern "C" void rt_switch(void** save, void* load);
asm(R"(
.text
.globl rt_switch
.hidden rt_switch
.type rt_switch,@function
rt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
static void to_main() {
  Fiber* f = rt_now;
  rt_switch(&f->saved, main_saved);
}
static void to_fiber(Fiber* f) {
  rt_now = f;
  rt_switch(&main_saved, f->saved);
  rt_now = nullptr;
}
#else
static void to_main() {
  Fiber* f = rt_now;
  swapcontext(&f->context, &main_context);
}
static void to_fiber(Fiber* f) {
  rt_now = f;
  swapcontext(&main_context, &f->context);
  rt_now = nullptr;
}
#endif

static void leave();
static void fiber_main() {
  launch->entry(launch->parameters);
  leave();
  rt_now->done = true;
  events++;
  to_main();
  abort();
}
static void prepare(Fiber* f) {
#if defined(RT_SWITCH)
  void** top = (void**)(f->stack + STACK);
  *--top = nullptr;
  *--top = (void*)fiber_main;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f->saved = top;
#else
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = nullptr;
  makecontext(&f->context, fiber_main, 0);
#endif
}
// With a page below it that nobody may touch; of many, which the kernel has no more maps for, below
// each `LOT` of them.
static u8* stack_of(size_t index) {
  static std::vector<u8*> stacks;
  while (stacks.size() <= index) {
    size_t count = stacks.size() < GUARDED ? 1 : LOT;
    u8* at = (u8*)mmap(nullptr, count * STACK + 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    mprotect(at, 4096, PROT_NONE);
    for (size_t i = 0; i < count; i++) stacks.push_back(at + 4096 + i * STACK);
  }
  return stacks[index];
}
static void block(Wait wait, const char* where, u64 token = 0, u32 address = 0, u32 parity = 0) {
  Fiber* f = rt_now;
  f->wait = wait;
  f->where = where;
  f->token = token;
  f->address = address;
  f->parity = parity;
  f->poked = false;
  to_main();
  f->wait = RUNNING;
}

// ---------------------------------------------------------------- whole warps
// True for the last lane: it acts for all and then calls `part`.
static bool meet(const char* name, void* argument) {
  Fiber* f = rt_now;
  Warp* w = f->warp;
  if (w->gone) {
    fault("%s: lanes %#x of the warp have left the kernel", name, w->gone);
    aborted = true;
    to_main();
  }
  if (w->mask == 0) w->name = name;
  else if (strcmp(w->name, name)) {
    fault("%s: divergent warp, lanes %#x are in %s", name, w->mask, w->name);
    aborted = true;
    to_main();
  }
  w->arguments[f->lane] = argument;
  w->mask |= 1u << f->lane;
  if (w->mask == w->full) return true;
  block(MEETING, name, w->generation);
  return false;
}
static void part() {
  rt_now->warp->mask = 0;
  rt_now->warp->generation++;
  events++;
}
"""
