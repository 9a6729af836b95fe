"""A backend whose kernels double a vector, or fail in the way that the schedule asks for."""

from __future__ import annotations

import os
import time

from ir.builder import Graph, operator
from ir.errors import Refusal
from ir.kernel import Argument, Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.target import Hardware

EXTENT = 1000
HARDWARE = Hardware("fake", "test", (), 2, ())

_DECLARATIONS = """\
declare void @abort()
declare void @_exit(i32)
declare i64 @write(i32, ptr, i64)
declare i32 @usleep(i32)
declare void @tilewright_barrier(ptr)
declare i64 @tilewright_ticket(ptr, i64)
@counter = internal global i64 0
@block = internal global [65536 x i8] zeroinitializer
"""

# Thread t doubles elements t, t + threads, ...: enough of a kernel for everything tested here.
_BODY = """\
define void @doubled_body(i64 %thread, i64 %threads, ptr %args, ptr %team) {
entry:
  %a = load ptr, ptr %args
  %o.at = getelementptr ptr, ptr %args, i64 1
  %o = load ptr, ptr %o.at
PRELUDE
  br label %head
head:
  %i = phi i64 [ %thread, %START ], [ %next, %loop ]
  %more = icmp ult i64 %i, COUNT
  br i1 %more, label %loop, label %done
loop:
  %x.at = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %x.at
  %y0 = fmul float %x, FACTOR
  %y.at = getelementptr float, ptr %o, i64 %i
  store float %y0, ptr %y.at
  %next = add i64 %i, %threads
  br label %head
done:
  ret void
}
"""

_LOOP = """\
  br label %again
again:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  CALL
  %n1 = add i64 %n, 1
  %on = icmp ult i64 %n1, TIMES
  br i1 %on, label %again, label %after
after:"""


def _loop(call: str, times: int) -> str:
    return _LOOP.replace("CALL", call).replace("TIMES", str(times))


_WRITE = "%w = call i64 @write(i32 2, ptr @block, i64 65536)"
_FORGET = """\
  %before = atomicrmw add ptr @counter, i64 1 seq_cst
  %early = icmp ult i64 %before, %threads
  %f = select i1 %early, float 2.0, float 3.0"""
# Right as long as the first input is the one seen at the first run.
_REMEMBER = """\
  %seen = load i64, ptr @counter
  %now.f = load i32, ptr %a
  %now = zext i32 %now.f to i64
  %fresh = icmp eq i64 %seen, 0
  %kept = select i1 %fresh, i64 %now, i64 %seen
  store i64 %kept, ptr @counter
  %same = icmp eq i64 %kept, %now
  %f = select i1 %same, float 2.0, float 3.0"""

_PRELUDES = {
    "segfault": "  store i64 1, ptr inttoptr (i64 8 to ptr)",
    "hang": _loop("%w = call i32 @usleep(i32 1000)", 1 << 40),
    "exit": "  call void @_exit(i32 0)",
    "abort": "  call void @abort()",
    "flood": _loop(_WRITE, 1600),
    "unstable": _FORGET,
    "remember": _REMEMBER,
    "write_input": "  store float 1.0, ptr %a",
    "barriers": "  call void @tilewright_barrier(ptr %team)\n"
    "  call void @tilewright_barrier(ptr %team)",
    "slow": _loop("%w = call i32 @usleep(i32 500)", 10),
    "undefined": "  call void @no_such_function()",
}
_FACTORS = {"wrong": "3.0", "nan": "0x7FF8000000000000", "unstable": "%f", "remember": "%f"}
_COUNTS = {"untouched": EXTENT - 7, "overrun": EXTENT + 4096}


def body(what: str) -> str:
    """The LLVM text of a kernel that does `what`."""
    if what == "bad_ir":
        return "define void @doubled_body() { this is not LLVM }"
    if what == "fatal_ir":
        return 'module asm ".this_is_no_directive"\n' + body("good")
    prelude = _PRELUDES.get(what, "")
    text = _BODY.replace("PRELUDE\n", prelude + "\n" if prelude else "")
    text = text.replace("START", "after" if "after:" in prelude else "entry")
    text = text.replace("FACTOR", _FACTORS.get(what, "2.0"))
    extra = "declare void @no_such_function()\n" if what == "undefined" else ""
    return _DECLARATIONS + extra + text.replace("COUNT", str(_COUNTS.get(what, EXTENT)))


C_BODY = """\
static void doubled_body(int64_t thread, int64_t threads, void **args, void *team) {
  const float *a = (const float *)args[0];
  float *o = (float *)args[1];
  (void)team;
  for (int64_t i = thread; i < 1000; i += threads) o[i] = 2.0f * a[i];
}
"""


def kernel(what: str, threads: int = 2, *, variant: int = 0) -> Kernel:
    """A kernel that does `what`; `variant` changes its key alone."""
    arguments = (
        Argument("A", (EXTENT,), "f32", "input"),
        Argument("O", (EXTENT,), "f32", "output"),
        Argument("room", (33,), "f32", "workspace"),
    )
    texts = (("llvm", f"; variant {variant}\n" + body(what)), ("c", C_BODY))
    return Kernel("doubled", "cpu", arguments, texts, "doubled_body", threads)


def schedule(what: str, variant: int = 0, threads: int = 2) -> Schedule:
    return Schedule.of("fake", {"do": what, "variant": variant, "threads": threads})


@operator
def double(g: Graph, n: int = EXTENT) -> None:
    """O = 2 A."""
    axis = g.axis("n", n)
    g.output("O", g.input("A", (axis,), "f32") * 2.0, "f32")


PROGRAM = double.build()


class FakeBackend:
    """See `ir.target.Backend`; it has no space."""

    name = "fake"
    generator = "0"

    def lower(self, program: Program, schedule: Schedule, hardware: Hardware) -> Kernel:
        what = str(schedule["do"])
        if what == "refuse":
            raise Refusal("no-bytes", "1 B needed, 0 B there")
        if what == "lower_raise":
            raise ZeroDivisionError("a bug in the generator")
        if what == "lower_hang":
            time.sleep(1000)
        if what == "lower_abort":
            os.abort()
        if what == "lower_memory":
            raise MemoryError
        return kernel(what, int(schedule["threads"]), variant=int(schedule["variant"]))
