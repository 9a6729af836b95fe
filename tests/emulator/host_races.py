"""C++ of the host machine: races in shared memory between threads that no barrier orders.

Of every byte it is known which thread wrote it last and which read it, and behind how many barriers
of the whole block. Two threads at the same byte, one of them writing, with no barrier between are a
race, whatever order they happened to run in. Blocks whose threads wait for each other in other ways
as well (mbarriers, barriers of some warps, clusters) are not judged.
"""

TEXT = r"""
// ---------------------------------------------------------------- races
static const u16 NOBODY = 0xffff, SEVERAL = 0xfffe;
static void race(Cta* cta, const char* what, const char* done, u32 offset, u32 thread) {
  if (!cta->race.empty()) return;
  char text[200];
  snprintf(text, sizeof text,
           "%s: a race, no barrier is between it and what thread %d %s (shared byte %u)", what,
           thread == SEVERAL ? -1 : (int)thread, done, offset);
  cta->race = text;
}
static void touch(Fiber* f, u32 offset, u32 bytes, bool write, const char* what) {
  Cta* cta = f->cta;
  if (cta->waits_otherwise) return;
  if (cta->touched.empty()) cta->touched.assign(cta->bytes, {0, 0, NOBODY, NOBODY});
  u32 epoch = (u32)cta->named[0].generation + 1;
  u16 thread = (u16)f->index;
  for (u32 b = offset; b < offset + bytes; b++) {
    Touch& t = cta->touched[b];
    if (t.written == epoch && t.writer != thread) race(cta, what, "wrote", b, t.writer);
    if (write) {
      if (t.read == epoch && t.reader != thread) race(cta, what, "read", b, t.reader);
      t.written = epoch;
      t.writer = thread;
    } else {
      t.reader = t.read == epoch && t.reader != thread ? SEVERAL : thread;
      t.read = epoch;
    }
  }
}
static void report_race(Cta* cta) {
  if (!cta->race.empty() && !cta->waits_otherwise) fault("%s", cta->race.c_str());
}
"""
