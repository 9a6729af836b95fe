"""How sums cross from the threads that multiply to those that write lines: as the synthesis finds.

The accumulators of a block's tile, of each warp along the sum a part of them, and the lines that
its threads write are posed as two register tiles of the same values. What converts one to the other
is a place in shared memory, and what lies side by side there and in a thread. Emits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.layout.layout import Layout
from ir.layout.swizzle import AnyLayout, Composed, parse
from ir.layout.synthesis import ConvertPlan, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.placed import ThreadValues
from ir.targets.cuda.layouts.synthesised import ENOUGH

PART = 2  # the axis behind rows and columns: whose sums they are, of the warps along the sum
LARGEST = 4  # words of an access
PLAIN_COPIES = "sm_70"  # a target whose threads copy no matrices, which these kernels do without


@dataclass(frozen=True, slots=True)
class Crossing:
    """`memory`: (row, column, part) -> word in shared memory; `first`: (thread, store) -> where the
    first word of a store lies, in the index of rows, columns and parts; `words`: (number, store) ->
    which of a thread's accumulators it is."""

    memory: AnyLayout
    first: Layout
    words: Layout

    def loads(self, axis: int, count: int) -> tuple[tuple[int, ...], ...]:
        """Which of so many neighbours along the rows or the columns one load brings, for each load
        in the order of its words."""
        memory, whole = self.memory, LARGEST
        if isinstance(memory, Composed):
            whole = min(whole, 1 << memory.swizzle.base)
            memory = memory.layout
        lies = {memory((n, 0, 0) if axis == 0 else (0, n, 0)): n for n in range(count)}
        while whole > 1:
            starts = [at for at in lies if at % whole == 0]
            if {at + word for at in starts for word in range(whole)} == lies.keys():
                break
            whole //= 2
        starts = [at for at in lies if at % whole == 0]
        return tuple(tuple(lies[at + word] for word in range(whole)) for at in starts)


@lru_cache(maxsize=1024)
def crossing(sums: ThreadValues, lines: ThreadValues, shape: tuple[int, int, int]) -> Crossing:
    """The way of a tile of so many rows, columns and parts from `sums` to `lines`."""
    axes = tuple(zip(("row", "column", "part"), shape, strict=True))
    held, wanted = sums.text(shape), lines.text(shape)
    problem = TileProgram(
        "crossing",
        prod(step.size for step in sums.threads),
        (
            Tile("sums", "f32", axes, "register", layout=held),
            Tile("lines", "f32", axes, "register", layout=wanted),
        ),
        (
            TileOp("fill", (), ("sums",), (("value", 0),)),
            TileOp("map", ("sums",), ("lines",), (("expression", "sums"),)),
        ),
        target=PLAIN_COPIES,
        shared_bytes=ENOUGH,
        registers=ENOUGH,
    )
    found = (_read(step) for step in synthesise(problem, 1)[0].conversions)
    return next((one for one in found if one is not None), None) or _line_by_line(held, shape)


def _read(step: ConvertPlan) -> Crossing | None:
    """A conversion through shared memory; None for one within warps."""
    if step.scratch is None or step.store is None:
        return None
    first, words = step.store.target_addresses, step.store.values
    return Crossing(parse(step.scratch.layout), Layout.parse(first), Layout.parse(words))


def _line_by_line(held: str, shape: tuple[int, int, int]) -> Crossing:
    """Rows one after the other and words one by one: of the few small tiles whose lines would be
    made by exchanges between lanes."""
    rows, columns, _ = shape
    first = Layout.parse(held)
    words = Layout((1, first.mode(1).size), (0, 1))
    return Crossing(Layout(shape, (columns, 1, rows * columns)), first, words)
