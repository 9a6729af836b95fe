"""The text of the thread pool as C, with @MARKS@ that `pool` fills in; twin of the LLVM text."""

C = """\
/* Tilewright thread pool. Workers persist and are pinned; idle, they spin, yield, nap, and at last
 * sleep until woken. Told to rest, they sleep at once.
 * Kernels have their own copy of the code and share the state, whatever they were linked into:
 * all that use this version of the pool (@VERSION@) take turns on the same threads. */
#ifndef TILEWRIGHT_POOL
#define TILEWRIGHT_POOL
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define TILEWRIGHT_OWN static __attribute__((unused))
#define TILEWRIGHT_LINE __attribute__((aligned(64)))

typedef struct {
  uint64_t word TILEWRIGHT_LINE; /* launch number << 16 | threads */
  void (*body)(int64_t, int64_t, void **, void *);
  void **args;
  int64_t running TILEWRIGHT_LINE;    /* workers that have not finished */
  int64_t arrived TILEWRIGHT_LINE;    /* threads waiting at the barrier */
  int64_t generation TILEWRIGHT_LINE; /* of the barrier */
  int64_t threads TILEWRIGHT_LINE;
  int64_t tickets[64] TILEWRIGHT_LINE; /* zero at the start of a launch */
} tilewright_team_t;

typedef void (*tilewright_body_t)(int64_t thread, int64_t threads, void **args, void *team);

/* Room enough for any system's mutex and condition variable, as in the LLVM text of this pool. */
typedef union { pthread_mutex_t mutex; char room[128]; } tilewright_mutex_t;
typedef union { pthread_cond_t cond; char room[128]; } tilewright_cond_t;

/* A unique symbol is one object in the whole process, also for libraries that are loaded so that
 * nobody else sees their names. Where there is none, each library has a pool of its own. */
#define TILEWRIGHT_POOL_AS "@GROUP@_"
#if defined(__ELF__) && defined(__linux__)
#define TILEWRIGHT_UNIQUE(name, bytes) \\
  ".balign 64\\n.type " TILEWRIGHT_POOL_AS #name ",%gnu_unique_object\\n" \\
  ".size " TILEWRIGHT_POOL_AS #name "," #bytes "\\n" \\
  TILEWRIGHT_POOL_AS #name ": .zero " #bytes "\\n"
__asm__(
    ".ifndef " TILEWRIGHT_POOL_AS "team\\n"
    ".pushsection .bss.@GROUP@,\\"awG\\",%nobits,@GROUP@,comdat\\n"
@UNIQUE_STATE@
    ".popsection\\n.endif\\n");
#define TILEWRIGHT_SHARED extern __attribute__((visibility("default")))
#else
#define TILEWRIGHT_SHARED __attribute__((weak))
#endif
#define TILEWRIGHT_AS(name) __asm__(TILEWRIGHT_POOL_AS #name) TILEWRIGHT_LINE

typedef unsigned char tilewright_cpus_t[128];
TILEWRIGHT_SHARED tilewright_team_t tilewright_team TILEWRIGHT_AS(team);
TILEWRIGHT_SHARED int64_t tilewright_lock TILEWRIGHT_AS(lock);
TILEWRIGHT_SHARED int64_t tilewright_started TILEWRIGHT_AS(started);
TILEWRIGHT_SHARED int64_t tilewright_process TILEWRIGHT_AS(process);
TILEWRIGHT_SHARED int64_t tilewright_parked TILEWRIGHT_AS(parked);
TILEWRIGHT_SHARED int64_t tilewright_resting TILEWRIGHT_AS(resting);
TILEWRIGHT_SHARED tilewright_mutex_t tilewright_mutex TILEWRIGHT_AS(mutex);
TILEWRIGHT_SHARED tilewright_cond_t tilewright_wakeup TILEWRIGHT_AS(wakeup);
TILEWRIGHT_SHARED tilewright_cpus_t tilewright_cpus TILEWRIGHT_AS(cpus);
TILEWRIGHT_SHARED int64_t tilewright_cpu_count TILEWRIGHT_AS(cpu_count);
TILEWRIGHT_SHARED int64_t tilewright_spins TILEWRIGHT_AS(spins);

/* Waits a little: pauses at first, later gives the processor away. */
TILEWRIGHT_OWN void tilewright_relax(int64_t spins) {
  if (spins >= tilewright_spins) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Sleeps until the launch word differs from `seen`. The launcher stores the word before it reads
 * `parked`, we count ourselves parked before we read the word: one of us sees the other. */
TILEWRIGHT_OWN void tilewright_park(uint64_t seen) {
  pthread_mutex_lock(&tilewright_mutex.mutex);
  __atomic_fetch_add(&tilewright_parked, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&tilewright_team.word, __ATOMIC_SEQ_CST) == seen)
    pthread_cond_wait(&tilewright_wakeup.cond, &tilewright_mutex.mutex);
  __atomic_fetch_sub(&tilewright_parked, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&tilewright_mutex.mutex);
}

TILEWRIGHT_OWN void tilewright_find_cpus(void) {
#ifdef __linux__
  sched_getaffinity(0, sizeof tilewright_cpus, (cpu_set_t *)tilewright_cpus);
  tilewright_cpu_count = 0;
  for (size_t i = 0; i < sizeof tilewright_cpus; i++)
    tilewright_cpu_count += __builtin_popcount(tilewright_cpus[i]);
#endif
}

/* Worker i stays on the i-th processor that the process was allowed when the pool started. */
TILEWRIGHT_OWN void tilewright_pin(int64_t index) {
#ifdef __linux__
  unsigned char mask[128] TILEWRIGHT_LINE = {0};
  for (int cpu = 0; cpu < 1024; cpu++) {
    if (!(tilewright_cpus[cpu >> 3] >> (cpu & 7) & 1) || index-- > 0) continue;
    mask[cpu >> 3] = (unsigned char)(1 << (cpu & 7));
    sched_setaffinity(0, sizeof mask, (cpu_set_t *)mask);
    return;
  }
#else
  (void)index;
#endif
}

TILEWRIGHT_OWN void *tilewright_worker(void *argument) {
  int64_t index = (int64_t)(intptr_t)argument, spins = 0;
  uint64_t seen = 0;
  tilewright_pin(index);
  for (;;) {
    uint64_t word = __atomic_load_n(&tilewright_team.word, __ATOMIC_ACQUIRE);
    int64_t threads = (int64_t)(word & 65535);
    if (word == seen) {
      if (__atomic_load_n(&tilewright_resting, __ATOMIC_ACQUIRE)) tilewright_park(seen);
      else if (spins < @AWAKE@) tilewright_relax(spins);
      else if (spins < @PATIENCE@) usleep(50);
      else tilewright_park(seen);
      spins++;
      continue;
    }
    seen = word;
    if (index >= threads) continue;
    tilewright_team.body(index, threads, tilewright_team.args, &tilewright_team);
    __atomic_fetch_sub(&tilewright_team.running, 1, __ATOMIC_RELEASE);
    spins = 0;
  }
  return NULL;
}

/* Starts workers until `threads` can run, and returns how many can. Called under the lock.
 * A forked child has none of its parent's workers, and begins anew. */
TILEWRIGHT_OWN int64_t tilewright_ensure(int64_t threads) {
  if (tilewright_process != (int64_t)getpid()) {
    tilewright_process = (int64_t)getpid();
    tilewright_started = tilewright_parked = 0;
    memset(&tilewright_team, 0, sizeof tilewright_team);
    pthread_mutex_init(&tilewright_mutex.mutex, NULL);
    pthread_cond_init(&tilewright_wakeup.cond, NULL);
    tilewright_find_cpus();
  }
  int crowded = tilewright_cpu_count && threads > tilewright_cpu_count;
  tilewright_spins = crowded ? @CROWDED_SPINS@ : @SPINS@;
  while (tilewright_started + 1 < threads) {
    pthread_t handle;
    void *index = (void *)(intptr_t)(tilewright_started + 1);
    if (pthread_create(&handle, NULL, tilewright_worker, index)) return tilewright_started + 1;
    pthread_detach(handle);
    tilewright_started++;
  }
  return threads;
}

/* Moves the caller off the processor of a worker that is to run beside it: the system lets two
 * threads that never sleep share one for a tenth of a second and more. The caller's rights are as
 * before; if it is kept from some of the processors that the pool found, it stays. */
TILEWRIGHT_OWN void tilewright_part(int64_t threads) {
#ifdef __linux__
  int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= 1024) return;
  int byte = cpu >> 3, bit = 1 << (cpu & 7), rank = 0;
  for (int i = 0; i < byte; i++) rank += __builtin_popcount(tilewright_cpus[i]);
  rank += __builtin_popcount(tilewright_cpus[byte] & (bit - 1));
  if (!(tilewright_cpus[byte] & bit) || rank < 1 || rank >= threads) return;
  unsigned char mask[128] TILEWRIGHT_LINE = {0};
  if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask)) return;
  for (int i = 0; i < 128; i++)
    if (tilewright_cpus[i] & ~mask[i]) return;
  tilewright_pin(0);
  sched_setaffinity(0, sizeof mask, (cpu_set_t *)mask);
#else
  (void)threads;
#endif
}

/* Runs body(thread, threads, args, team) on `threads` threads; the caller is thread 0. */
TILEWRIGHT_OWN void tilewright_launch(tilewright_body_t body, void **args, int64_t threads) {
  if (threads <= 1) {
    tilewright_team_t own;
    memset(&own, 0, sizeof own);
    own.threads = 1;
    body(0, 1, args, &own);
    return;
  }
  for (int64_t spins = 0; __atomic_exchange_n(&tilewright_lock, 1, __ATOMIC_ACQUIRE); spins++)
    tilewright_relax(spins);
  threads = tilewright_ensure(threads);
  tilewright_part(threads);
  tilewright_team.body = body;
  tilewright_team.args = args;
  tilewright_team.running = threads - 1;
  tilewright_team.threads = threads;
  memset(tilewright_team.tickets, 0, sizeof tilewright_team.tickets);
  uint64_t word = ((tilewright_team.word >> 16) + 1) << 16 | (uint64_t)threads;
  __atomic_store_n(&tilewright_resting, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&tilewright_team.word, word, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&tilewright_parked, __ATOMIC_SEQ_CST)) {
    pthread_mutex_lock(&tilewright_mutex.mutex);
    pthread_cond_broadcast(&tilewright_wakeup.cond);
    pthread_mutex_unlock(&tilewright_mutex.mutex);
  }
  body(0, threads, args, &tilewright_team);
  for (int64_t spins = 0; __atomic_load_n(&tilewright_team.running, __ATOMIC_ACQUIRE); spins++)
    tilewright_relax(spins);
  __atomic_store_n(&tilewright_lock, 0, __ATOMIC_RELEASE);
}

/* Puts all workers to sleep until the next launch, and returns when they are: for whoever wants
 * the processors for something else. A forked child has no workers. */
TILEWRIGHT_OWN void tilewright_rest(void) {
  if (tilewright_process != (int64_t)getpid()) return;
  for (int64_t spins = 0; __atomic_exchange_n(&tilewright_lock, 1, __ATOMIC_ACQUIRE); spins++)
    tilewright_relax(spins);
  __atomic_store_n(&tilewright_resting, 1, __ATOMIC_SEQ_CST);
  for (int64_t spins = 0;
       __atomic_load_n(&tilewright_parked, __ATOMIC_SEQ_CST) < tilewright_started; spins++)
    tilewright_relax(spins);
  __atomic_store_n(&tilewright_lock, 0, __ATOMIC_RELEASE);
}

/* All threads of the team meet here. The last to arrive opens the next generation. */
TILEWRIGHT_OWN void tilewright_barrier(void *opaque) {
  tilewright_team_t *team = (tilewright_team_t *)opaque;
  if (team->threads <= 1) return;
  int64_t generation = __atomic_load_n(&team->generation, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == team->threads) {
    __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&team->generation, generation + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int64_t spins = 0;
       __atomic_load_n(&team->generation, __ATOMIC_ACQUIRE) == generation; spins++)
    tilewright_relax(spins);
}

/* The next number of counter `slot` (0 to 63): how threads share chunks out among themselves. */
TILEWRIGHT_OWN int64_t tilewright_ticket(void *opaque, int64_t slot) {
  tilewright_team_t *team = (tilewright_team_t *)opaque;
  return __atomic_fetch_add(&team->tickets[slot], 1, __ATOMIC_ACQ_REL);
}

/* Scratch memory of an exported entry: taken out of its slot, so that concurrent calls never share
 * it, and given back, so that its pages are touched once. Large blocks lie on huge pages. */
TILEWRIGHT_OWN void *tilewright_scratch_take(void **slot, int64_t bytes) {
  void *block = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQUIRE);
  if (block) return block;
  size_t alignment = bytes >= 2097152 ? 2097152 : 64;
  if (posix_memalign(&block, alignment, (size_t)bytes)) abort();
#ifdef __linux__
  madvise(block, (size_t)bytes, MADV_HUGEPAGE);
#endif
  return block;
}

TILEWRIGHT_OWN void tilewright_scratch_give(void **slot, void *block) {
  free(__atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL));
}

#endif
"""
