"""C++ of the host machine, part 7: what ends a kernel before it ends the process, and launch."""

TEXT = r"""
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static pthread_t runner;                // the thread that runs the fibers
static const u8 *text_first, *text_end;  // the library that holds the kernel
static const int FATAL[3] = {SIGSEGV, SIGBUS, SIGFPE};

static void end_kernel() {
  aborted = true;
  to_main();
}
static void crash(int signal, siginfo_t* info, void*) {
  if (!rt_now || !pthread_equal(runner, pthread_self())) {
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  u8* at = (u8*)info->si_addr;
  if (signal == SIGFPE) fault("crash: integer division by zero");
  else if (at < rt_now->stack && at >= rt_now->stack - 4096)
    fault("crash: the thread's stack of %zu KiB is full", STACK >> 10);
  else
    fault(
        "crash: an ordinary pointer leaves its memory (%lld bytes from the block's shared memory)",
        (i64)(at - rt_now->cta->memory));
  end_kernel();
}

// ---------------------------------------------------------------- loops that call no wrapper
static const u8* interrupted(void* context) {
#if defined(__x86_64__)
  return (const u8*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (const u8*)((ucontext_t*)context)->uc_mcontext.pc;
#else
  return nullptr;
#endif
}
static void tick(int, siginfo_t*, void* context) {  // acts in the kernel's own text alone
  const u8* at = interrupted(context);
  if (!rt_now || clock_now() < deadline || at < text_first || at >= text_end) return;
  fault("time limit of %g s is over between two wrappers", launch->limit);
  end_kernel();
}
static int find_text(dl_phdr_info* info, size_t, void*) {
  const u8* entry = (const u8*)launch->entry;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const u8* first = (const u8*)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    const u8* end = first + info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || entry < first || entry >= end) continue;
    text_first = first;
    text_end = end;
    return 1;
  }
  return 0;
}
static bool start_ticking(timer_t* timer) {  // five times a second, in this thread
  struct sigaction action = {};
  action.sa_sigaction = tick;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  sigaction(SIGRTMAX - 3, &action, nullptr);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGRTMAX - 3;
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  if (timer_create(CLOCK_MONOTONIC, &event, timer)) return false;
  itimerspec every = {{0, 200000000}, {0, 200000000}};
  timer_settime(*timer, 0, &every, nullptr);
  return true;
}
static void with_watch(void (*act)()) {
  timer_t timer;
  text_first = text_end = nullptr;
  dl_iterate_phdr(find_text, nullptr);
  bool ticking = start_ticking(&timer);
  act();
  if (ticking) timer_delete(timer);
  signal(SIGRTMAX - 3, SIG_IGN);  // one may still be on its way
}
static void with_signals(void (*act)()) {
  static u8* space = (u8*)malloc(64 << 10);
  stack_t other = {}, old_stack;
  other.ss_sp = space;
  other.ss_size = 64 << 10;
  struct sigaction action = {}, old[3];
  action.sa_sigaction = crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  runner = pthread_self();
  sigaltstack(&other, &old_stack);
  for (int i = 0; i < 3; i++) sigaction(FATAL[i], &action, &old[i]);
  with_watch(act);
  for (int i = 0; i < 3; i++) sigaction(FATAL[i], &old[i], nullptr);
  sigaltstack(&old_stack, nullptr);
}
extern "C" int rt_launch(const Launch* wanted) {
  launch = wanted;
  faults.clear();
  kinds.clear();
  aborted = false;
  rt_now = nullptr;
  deadline = clock_now() + wanted->limit;
  for (u32 i = 0; i < 256; i++) eighth_table[i] = eighth_value(i);
  if (fits()) with_signals(run_grid);
  std::string all;
  for (auto& text : faults) all += text + "\n";
  snprintf(wanted->report, wanted->report_bytes, "%s", all.c_str());
  return faults.size();
}
"""
