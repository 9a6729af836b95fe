"""A main loop that blocks share: each reduces a part, the last to arrive combines the parts.

The threads that hold a block's results write them to the workspace, point by point of the tile;
those of the last block combine all parts in their order and go on to the stores. Nobody waits, the
result does not depend on the order of arrival, and the count is left at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from ir.errors import Refusal
from ir.program import Program
from ir.rewrite.walking import walked as walk_of
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.readers import only_stored
from ir.targets.cuda.grid.merging import ARRIVALS, SHARES
from ir.targets.cuda.launch import Room
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.passes import find_passes

FLAG_BYTES = 16  # of shared memory, where a block learns whether it is the last
Move = Callable[[int, str, str], str]
WORD = frozenset({"f32", "i32"})  # register types of 4 bytes


def shared_loops(program: Program) -> frozenset[str]:
    """Axes whose main loop blocks can share: one pass, whose results go to the stores alone."""
    return frozenset(axis for axis in program.axes if _can_share(program, axis))


def _can_share(program: Program, axis: str) -> bool:
    looped = frozenset({axis})
    walked = walk_of(program, looped)
    reductions = [p for p, node in enumerate(walked.nodes) if is_reduction(node)]
    if not any(axis in reduced_axes(walked.nodes[p]) for p in reductions):
        return False
    try:
        passes = find_passes(walked, looped).passes
    except Refusal:
        return False
    once = len(passes) == 1 and not passes[0].stores and set(passes[0].reductions) == {*reductions}
    words = all(scalars.register_type(walked.nodes[p].dtype) in WORD for p in reductions)
    return once and words and set(reductions) <= only_stored(walked)


@dataclass(frozen=True)
class Parts:
    """The parts of each of `tiles` tiles.

    `tile`, `part` and `flag` are text: two numbers and an address in shared memory.
    """

    evaluator: Evaluator
    count: int
    tiles: int
    tile: str
    part: str
    flag: str

    def rooms(self, name: str, results: Sequence[int]) -> tuple[Room, ...]:
        """Workspace of kernel `name`."""
        points = sum(self._points(position) for position in results)
        return (
            Room(f"{name}.{SHARES}", 4 * self.tiles * self.count * points),
            Room(f"{name}.{ARRIVALS}", 4 * self.tiles, clean=True),
        )

    @contextmanager
    def last(self, results: Sequence[int]) -> Iterator[None]:
        """What is written inside is done by the last block, on the combined results."""
        e, w = self.evaluator, self.evaluator.w
        points = sum(self._points(position) for position in results)
        w.line(f"u32* const shares = {SHARES} + (i64){self.tile} * {self.count * points};")
        self._each(results, f"{self.part} * {points}", self._give)
        w.line(e.team.sync)
        arrived = f"{ARRIVALS} + {self.tile}"
        w.line(f"if ({e.team.thread} == 0) *(u32*)({self.flag}) = tw_count({arrived});")
        w.line(e.team.sync)
        with w.block(f"if (*(u32*)({self.flag}) == {self.count - 1})"):
            for position in results:
                identity = e.identity(position)
                e.fill(e.values[position], identity)
            w.line("#pragma unroll 4")
            with w.block(f"for (i32 one = 0; one < {self.count}; one++)"):
                self._each(results, f"one * {points}", self._take)
            w.line(f"if ({e.team.thread} == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield

    def _points(self, position: int) -> int:
        return prod(self.evaluator.tiles[axis] for axis in self.evaluator.nodes[position].axes)

    def _each(self, results: Sequence[int], start: str, move: Move) -> None:
        """`move` between registers and the workspace in the threads that hold the results."""
        e, before = self.evaluator, 0
        for position in results:
            axes = e.nodes[position].axes
            only = e.first_holder(axes)
            fragment = e.values[position]
            with e.w.block(f"if ({only})" if only else ""), e.each(fragment.digits) as point:
                place = f"shares[{start} + {before} + {e.place_in_tile(axes, point)}]"
                e.w.line(move(position, e.element(fragment, point), place))
            before += self._points(position)

    def _give(self, position: int, register: str, place: str) -> str:
        return f"{place} = tw_word({register});"

    def _take(self, position: int, register: str, place: str) -> str:
        dtype = self.evaluator.nodes[position].dtype
        real = scalars.register_type(dtype) == "f32"
        value = f"tw_float({place})" if real else f"(i32){place}"
        kind = self.evaluator.kind(position)
        return f"{register} = {self.evaluator.combine(kind, register, value, dtype)};"
