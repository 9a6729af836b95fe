"""A CUDA backend whose kernels double a vector, or fail in the way that the schedule asks for."""

from __future__ import annotations

import json

from ir.builder import Graph, operator
from ir.errors import Refusal
from ir.kernel import Argument, Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.target import Hardware
from ir.targets.cuda.prelude import prelude_text

EXTENT = 10_000
BLOCK = 128
HARDWARE = Hardware("cuda", "test", ("sm_90a",), 1, ())
MARK = "//@ kernel\n"

_BODY = """\
// variant VARIANT
TW_KERNEL __launch_bounds__(128) doubled(const f32* A, f32* O, u32* runs) {
PRELUDE
  for (i32 i = tw_block_x() * 128 + tw_thread(); i < COUNT; i += tw_grid_x() * 128) {
    O[i] = FACTOR * A[i];
  }
}
"""
_PRELUDES = {
    "fault": "  *(volatile f32*)(O + (1ll << 40)) = 1.0f;",
    "misaligned": "  *(volatile f32*)((u8*)O + 1) = 1.0f;",
    "trap": '  asm volatile("trap;");',
    "hang": "  while (((volatile const f32*)A)[0] != 12345.0f) {}",
    "no_text": "  this is no C++;",
    "unstable": """\
  const bool counts = tw_thread() == 0 && tw_block_x() == 0;
  const bool early = !counts || runs[0] + 1 <= 1;
  if (counts) runs[0] += 1;""",
}
_FACTORS = {"wrong": "3.0f", "nan": "(TW_INF * 0.0f)", "unstable": "(early ? 2.0f : 3.0f)"}
_COUNTS = {"untouched": EXTENT - 7}
_BLOCKS = {"too_many_threads": 2048}
_SHARED = {"too_much_shared": 300 << 10, "much_shared": 200 << 10}

FAULTS: tuple[tuple[str, str, str], ...] = (
    # what a kernel does, the outcome's status, words of its detail
    ("fault", "crash", "illegal memory access"),
    ("misaligned", "crash", "misaligned address"),
    ("trap", "crash", ""),
    ("too_many_threads", "crash", "launch: "),
    ("too_much_shared", "crash", "307200 bytes of shared memory"),
    ("wrong", "wrong_result", "of 10000 elements wrong, first at "),
    ("nan", "wrong_result", "nan instead of"),
    ("untouched", "wrong_result", "7 never written"),
    ("unstable", "unstable", "right at first, then not"),
    ("no_text", "compile_error", "error"),
    ("refuse", "illegal", "no-bytes: 1 B needed"),
)


def kernel(what: str, variant: int = 0) -> Kernel:
    """A kernel that does `what`; `variant` changes its key alone."""
    text = _BODY.replace("VARIANT", str(variant)).replace("PRELUDE", _PRELUDES.get(what, ""))
    text = text.replace("COUNT", str(_COUNTS.get(what, EXTENT)))
    text = text.replace("FACTOR", _FACTORS.get(what, "2.0f"))
    names = (("A", 0), ("O", 0), ("workspace", 64))
    launch = {
        "name": "doubled",
        "grid": [16, 1, 1],
        "block": _BLOCKS.get(what, BLOCK),
        "cluster": [1, 1, 1],
        "shared": _SHARED.get(what, 0),
        "parameters": [{"kind": "pointer", "argument": a, "offset": at} for a, at in names],
        "zero": [] if what == "unstable" else [[64, 4]],
    }
    plan = {"arch": "sm_90a", "options": [], "workspace_bytes": 128, "kernels": [launch]}
    arguments = (
        Argument("A", (EXTENT,), "f32", "input"),
        Argument("O", (EXTENT,), "f32", "output"),
        Argument("workspace", (128,), "u8", "workspace"),
    )
    text = f"// launch: {json.dumps(plan)}\n{text}"
    texts = (("cuda", f"{prelude_text(text)}{MARK}{text}"), ("launch", json.dumps(plan)))
    return Kernel("doubled", "cuda", arguments, texts, "doubled", 0)


def schedule(what: str, variant: int = 0) -> Schedule:
    return Schedule.of("fake", {"do": what, "variant": variant})


@operator
def double(g: Graph, n: int = EXTENT) -> None:
    """O = 2 A."""
    axis = g.axis("n", n)
    g.output("O", g.input("A", (axis,), "f32") * 2.0, "f32")


PROGRAM = double.build()


class FakeCudaBackend:
    """See `ir.target.Backend`; it has no space."""

    name = "fake"
    generator = "0"

    def lower(self, program: Program, schedule: Schedule, hardware: Hardware) -> Kernel:
        what = str(schedule["do"])
        if what == "refuse":
            raise Refusal("no-bytes", "1 B needed, 0 B there")
        return kernel(what, int(schedule["variant"]))
