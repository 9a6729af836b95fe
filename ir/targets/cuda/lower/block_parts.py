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
WORD, WIDE = frozenset({"f32", "i32"}), frozenset({"f64", "i64"})  # register types of 4, 8 bytes


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
    words = all(scalars.register_type(walked.nodes[p].dtype) in WORD | WIDE for p in reductions)
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
        points = self._words(results) * sum(self._points(position) for position in results)
        return (
            Room(f"{name}.{SHARES}", 4 * self.tiles * self.count * points),
            Room(f"{name}.{ARRIVALS}", 4 * self.tiles, clean=True),
        )

    @contextmanager
    def last(self, results: Sequence[int]) -> Iterator[None]:
        """What is written inside is done by the last block, on the combined results."""
        e, w = self.evaluator, self.evaluator.w
        points = sum(self._points(position) for position in results)
        room = self.count * points * self._words(results)
        w.line(f"u32* const shares = {SHARES} + (i64){self.tile} * {room};")
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

    def _type(self, position: int) -> str:
        return scalars.register_type(self.evaluator.nodes[position].dtype)

    def _words(self, results: Sequence[int]) -> int:
        """Of each point: two where any result takes as many, so that all lie at even places."""
        return 2 if any(self._type(position) in WIDE for position in results) else 1

    def _points(self, position: int) -> int:
        return prod(self.evaluator.tiles[axis] for axis in self.evaluator.nodes[position].axes)

    def _each(self, results: Sequence[int], start: str, move: Move) -> None:
        """`move` between registers and the workspace in the threads that hold the results."""
        e, before, words = self.evaluator, 0, self._words(results)
        for position in results:
            axes = e.nodes[position].axes
            only = e.first_holder(axes)
            fragment = e.values[position]
            with e.w.block(f"if ({only})" if only else ""), e.each(fragment.digits) as point:
                index = f"{start} + {before} + {e.place_in_tile(axes, point)}"
                place = f"shares[{index}]" if words == 1 else f"shares[({index}) * {words}]"
                e.w.line(move(position, e.element(fragment, point), place))
            before += self._points(position)

    def _give(self, position: int, register: str, place: str) -> str:
        type_ = self._type(position)
        return (
            f"*({type_}*)&{place} = {register};"
            if type_ in WIDE
            else f"{place} = tw_word({register});"
        )

    def _take(self, position: int, register: str, place: str) -> str:
        dtype, type_ = self.evaluator.nodes[position].dtype, self._type(position)
        value = f"tw_float({place})" if type_ == "f32" else f"(i32){place}"
        value = f"*({type_}*)&{place}" if type_ in WIDE else value
        kind = self.evaluator.kind(position)
        return f"{register} = {self.evaluator.combine(kind, register, value, dtype)};"
