"""Kernels without tensor cores: every value in registers, operands straight from memory.

Each axis has a tile, and a number of its points that one thread owns; what a tile of a reduced
axis does not cover is walked. That covers maps, reductions, normalisations, gathers and small or
exact products alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.streaming import stream
from ir.schedule import Value
from ir.space import Constraint
from ir.stages import is_reduction, reduced_axes
from ir.target import Hardware
from ir.targets.cuda import scalars
from ir.targets.cuda.block_options import PREFETCH, option_decisions, options_of
from ir.targets.cuda.bounds import loop_bounds
from ir.targets.cuda.evaluate import Evaluator
from ir.targets.cuda.frame import WARP, Share, blocked
from ir.targets.cuda.launch import Launch, Parameter
from ir.targets.cuda.loops import TileBody
from ir.targets.cuda.overlap import NAME as EARLY
from ir.targets.cuda.overlap import await_kernel_before, starts_early
from ir.targets.cuda.passes import find_passes
from ir.targets.cuda.readers import read_again
from ir.targets.cuda.registers import SCRATCH_BYTES, Team
from ir.targets.cuda.writer import Writer

MAX_THREADS = 1024
MAX_REGISTERS = 128  # of one value in one thread
MAX_ALL = 192  # of all values that a thread may hold at a time, roughly
MAX_TILE = 1 << 15
SCRATCH_LIMIT = 224 << 10  # bytes through which warps combine their parts
SCRATCH_ROOM = 32 << 10  # of which reductions after one another have places of their own


def power_above(extent: int) -> int:
    return 1 << max(0, extent - 1).bit_length()


@dataclass(frozen=True)
class BlockShape:
    """What the space of one block kernel is made from."""

    program: Program

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """Axes that some reduction combines over."""
        gone = {a for n in self.program.nodes if is_reduction(n) for a in reduced_axes(n)}
        return tuple(axis for axis in self.program.axes if axis in gone)

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Axes along which some tensor is contiguous, the largest tensor first."""
        found: dict[str, int] = {}
        for node in self.program.nodes:
            if not isinstance(node.op, (Load, Store)):
                continue
            spec = self.program.scope.tensors[node.op.tensor]
            if not spec.shape:
                continue
            last = node.op.axes[-1:] if isinstance(node.op, Store) else tuple(
                axis for axis, coefficient in node.op.index[-1].terms if coefficient == 1
            )  # fmt: skip
            for axis in last:
                found[axis] = max(found.get(axis, 0), prod(spec.shape))
        ranked = sorted(found, key=lambda axis: -found[axis])
        return tuple(ranked) or tuple(self.program.axes)[:1]

    @cached_property
    def loops(self) -> tuple[frozenset[str], ...]:
        """Sets of reduced axes that may be walked together."""
        found = []
        for count in range(len(self.reduced) + 1):
            for axes in combinations(self.reduced, count):
                looped = frozenset(axes)
                try:
                    find_passes(self.streamed(looped), looped)
                except Refusal:
                    continue
                found.append(looped)
        return tuple(found)

    def streamed(self, looped: frozenset[str]) -> Program:
        """The program with chains of reductions over `looped` axes made single-pass."""
        return stream(self.program, frozenset(self.program.axes) - looped)

    @cached_property
    def domains(self) -> tuple[frozenset[str], ...]:
        """Axes of the values that live in registers."""
        found = set()
        for node in self.program.nodes:
            if isinstance(node.op, (Load, Store)) or is_reduction(node):
                found.add(frozenset(node.axes))
        return tuple(sorted(found, key=sorted))

    @cached_property
    def results(self) -> tuple[frozenset[str], ...]:
        """Axes of what reductions give: what may cross warps through shared memory."""
        found = {frozenset(n.axes) for n in self.program.nodes if is_reduction(n)}
        return tuple(sorted(found, key=sorted))

    @cached_property
    def bodies(self) -> tuple[frozenset[str], ...]:
        """Axes over which some loop of instructions is unrolled."""
        found = set()
        for node in self.program.nodes:
            if is_reduction(node):
                found.add(frozenset(a for arg in node.args for a in self.program.nodes[arg].axes))
        return tuple(sorted(found, key=sorted))


class BlockKernel:
    """Decisions, constraints, seeds and lowering of one block kernel. `mark` ends its names."""

    kind = "block"

    def __init__(self, program: Program, mark: str, hardware: Hardware) -> None:
        self.program, self.mark, self.hardware = program, mark, hardware
        self.shape = BlockShape(program)
        if not self.shape.loops:
            raise Refusal("loops", "its reductions cannot share one kernel")

    # -- the space

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    def decisions(self) -> list[Decision]:
        found = []
        for axis, extent in self.program.axes.items():
            top = min(self._reach(axis, extent), MAX_TILE)
            tiles = tuple(1 << i for i in range(top.bit_length()))
            own = tuple(1 << i for i in range(min(top, 128).bit_length()))
            found += [
                Decision(self.name(f"tile.{axis}"), tiles, "tile", axis,
                         "points of the axis in one block; what is left of a sum is walked"),
                Decision(self.name(f"own.{axis}"), own, "binding", axis,
                         "points of the axis in one thread"),
            ]  # fmt: skip
        widest = max(16 // dtype_of(spec.dtype).bytes for spec in self.program.tensors)
        vectors = tuple(1 << i for i in range(widest.bit_length()))
        found.append(
            Decision(self.name("lanes"), self.shape.lanes, "layout", self.shape.lanes[0],
                     "the axis along which neighbouring threads lie"))  # fmt: skip
        found.append(
            Decision(self.name("vector"), vectors, "layout", self.shape.lanes[0],
                     "neighbours along it in one access of a thread"))  # fmt: skip
        return found + list(self.options)

    @cached_property
    def options(self) -> tuple[Decision, ...]:
        """Choices beside the tile; none means nothing to this program."""
        found = option_decisions(self.program, self.hardware, self.name, self.shape.lanes[0])
        return tuple(found)

    def _reach(self, axis: str, extent: int) -> int:
        """The largest tile of an axis: the whole of it, or more where all axes are tiny."""
        points = prod(power_above(extent) for extent in self.program.axes.values())
        short = -(-WARP // points) if axis == self.shape.lanes[0] else 1
        return power_above(extent) * short

    def constraints(self) -> list[Constraint]:
        rules = (
            ("own", "a thread owns no more of an axis than its tile has", self._own_fits),
            ("vector", "a vector lies within what a thread owns", self._vector_fits),
            ("threads", f"{WARP} to {MAX_THREADS} threads", self._threads_fit),
            ("registers", f"at most {MAX_REGISTERS} registers a value", self._registers_fit),
            ("walk", "axes that are walked belong to one chain of sums", self._loops_fit),
            ("grid", "less than 2^31 blocks", self._grid_fits),
        )
        if any(decision.name == self.name(PREFETCH) for decision in self.options):
            rules += (("prefetch", "kernels ask before their turn only if they start early",
                       self._prefetch_fits),)  # fmt: skip
        return [
            Constraint(self.name(name), needs, check, self._explain(name))
            for name, needs, check in rules
        ]

    def _explain(self, name: str) -> Any:
        def explain(values: Mapping[str, Value]) -> str:
            axes = self.program.axes
            shares = ", ".join(
                f"{a} {values[self.name(f'tile.{a}')]}/{values[self.name(f'own.{a}')]}"
                for a in axes
            )
            threads = self._threads(values)
            return f"{self.program.name}: tile/own {shares}; {threads} threads"

        return explain

    def _tile(self, columns: Any, axis: str) -> Any:
        return columns[self.name(f"tile.{axis}")]

    def _own(self, columns: Any, axis: str) -> Any:
        return columns[self.name(f"own.{axis}")]

    def _threads(self, columns: Any) -> Any:
        total: Any = 1
        for axis in self.program.axes:
            total = total * (self._tile(columns, axis) // self._own(columns, axis))
        return total

    def _own_fits(self, columns: Columns) -> Any:
        passed: Any = True
        for axis in self.program.axes:
            passed = passed & (self._own(columns, axis) <= self._tile(columns, axis))
        return passed

    def _vector_fits(self, columns: Columns) -> Any:
        passed: Any = np.zeros(columns.rows, dtype=bool)
        for axis in self.shape.lanes:
            chosen = columns.is_(self.name("lanes"), axis)
            passed |= chosen & (columns[self.name("vector")] <= self._own(columns, axis))
        return passed

    def _threads_fit(self, columns: Columns) -> Any:
        threads = self._threads(columns)
        return (threads >= WARP) & (threads <= MAX_THREADS)

    def _registers_fit(self, columns: Columns) -> Any:
        passed: Any = True
        total: Any = 0
        for domain in self.shape.domains:
            count: Any = 1
            for axis in domain:
                count = count * self._own(columns, axis)
            passed = passed & (count <= MAX_REGISTERS)
            total = total + count
        for body in self.shape.bodies:
            count = 1
            for axis in body:
                count = count * self._own(columns, axis)
            passed = passed & (count <= 8 * MAX_REGISTERS)
        budget = np.minimum(MAX_ALL, 49152 // np.maximum(1, self._threads(columns)))
        for result in self.shape.results:
            count = 1
            for axis in result:
                count = count * self._own(columns, axis)
            passed = passed & (count * self._threads(columns) * 8 <= SCRATCH_LIMIT)
        return passed & (total <= budget)

    def _loops_fit(self, columns: Columns) -> Any:
        passed: Any = np.zeros(columns.rows, dtype=bool)
        for looped in self.shape.loops:
            here: Any = np.ones(columns.rows, dtype=bool)
            for axis in self.shape.reduced:
                short = self._tile(columns, axis) < self.program.axes[axis]
                here &= short if axis in looped else ~short
            passed |= here
        return passed

    def _grid_fits(self, columns: Columns) -> Any:
        blocks: Any = np.ones(columns.rows)
        for axis, extent in self.program.axes.items():
            if axis not in self.shape.reduced:
                blocks = blocks * np.ceil(extent / self._tile(columns, axis))
        return blocks < 2**31

    def _prefetch_fits(self, columns: Columns) -> Any:
        wanted = columns[self.name(PREFETCH)] > 0
        return ~wanted | (columns[EARLY] > 0 if EARLY in columns else False)

    # -- seeds

    def seeds(self) -> list[dict[str, Value]]:
        """Rows spread over a block or a warp, whole where they fit, and walked."""
        last = {option.name: option.domain[-1] for option in self.options}
        return [
            self._seed(threads, own, whole) | last
            for threads, own, whole in (
                (128, 8, True), (256, 16, True), (256, 32, True), (512, 16, True), (128, 8, False),
                (256, 16, False), (32, 8, True), (1024, 32, True),
            )
        ]  # fmt: skip

    def _seed(self, threads: int, own: int, whole: bool) -> dict[str, Value]:
        lane = self.shape.lanes[0]
        axes = self.program.axes
        size = max(
            [dtype_of(s.dtype).bytes for s in self.program.tensors if len(s.shape) > 0] or [4]
        )
        values: dict[str, Value] = {self.name("lanes"): lane}
        vector = min(16 // size, power_above(axes[lane]), own)
        values[self.name("vector")] = vector
        left_threads, left_own = threads, own
        order = [lane, *(axis for axis in axes if axis != lane)]
        for axis in order:
            top = self._reach(axis, axes[axis])
            mine = min(left_own, top) if axis == lane else min(max(1, left_own // 2), top)
            across = min(left_threads, max(1, top // mine))
            if axis in self.shape.reduced and axis != lane and not whole:
                across = 1
            tile = mine * across
            values[self.name(f"tile.{axis}")] = min(tile, MAX_TILE)
            values[self.name(f"own.{axis}")] = mine
            left_threads, left_own = left_threads // across, max(1, left_own // mine)
        return values

    # -- lowering

    def lower(self, values: Mapping[str, Value], name: str) -> Launch:
        return _BlockLowering(self, values, name).run()


class _BlockLowering:
    def __init__(self, kernel: BlockKernel, values: Mapping[str, Value], name: str) -> None:
        self.kernel, self.name = kernel, name
        shape, axes = kernel.shape, kernel.program.axes
        self.tiles = {a: int(values[kernel.name(f"tile.{a}")]) for a in axes}
        own = {a: int(values[kernel.name(f"own.{a}")]) for a in axes}
        lanes, vector = str(values[kernel.name("lanes")]), int(values[kernel.name("vector")])
        order = [lanes, *(axis for axis in axes if axis != lanes)]
        self.frame = blocked(
            Share(a, self.tiles[a], own[a], vector if a == lanes else 1) for a in order
        )
        self.looped = frozenset(a for a in shape.reduced if self.tiles[a] < axes[a])
        self.program = shape.streamed(self.looped)
        self.w = Writer()
        self.early = starts_early(values)
        self.options = options_of(values, kernel.name)

    def run(self) -> Launch:
        evaluator = self._evaluator()
        self.w.line("const i32 thread = tw_thread();")
        evaluator.declare_threads()
        grid = self._origins(evaluator)
        if self.early and self.options.prefetch:
            self._prefetch(evaluator)
        await_kernel_before(self.w, self.early)
        body = TileBody(evaluator, find_passes(self.program, self.looped), self.looped)
        if self.options.first:
            body.load_first()
        body.emit(lambda number: self._loop(evaluator, body))
        shared = evaluator.scratch_registers * self.frame.team * SCRATCH_BYTES
        head = kernel_head(self.program, self.name, self.frame.team, "")
        text = f"{head} {{\n{self.w.text}}}\n"
        parameters = tuple(Parameter(spec.name) for spec in self.program.tensors)
        return Launch(self.name, text, grid, self.frame.team, shared, parameters, early=self.early)

    def _evaluator(self) -> Evaluator:
        team = Team("thread", self.frame.team, "tw_sync();", "tw_shared_base()")
        evaluator = Evaluator(self.program, self.w, self.frame, self.tiles, team)
        evaluator.room = SCRATCH_ROOM
        if self.options.keep:
            evaluator.kept = read_again(self.program)
        return evaluator

    def _prefetch(self, evaluator: Evaluator) -> None:
        """Ask for the first tile of what no other block reads."""
        for position, node in enumerate(self.program.nodes):
            if isinstance(node.op, Load) and evaluator.read_once(position):
                evaluator.prefetch(position)

    def _origins(self, evaluator: Evaluator) -> int:
        """Declare where this block's tile starts; returns the number of blocks."""
        free = [a for a in self.program.axes if a not in self.kernel.shape.reduced]
        return declare_tiles(self.w, evaluator, [(a, self.tiles[a]) for a in free], "tw_block_x()")

    @contextmanager
    def _loop(self, evaluator: Evaluator, body: TileBody) -> Iterator[None]:
        later = []
        with ExitStack() as stack:
            for axis in self.program.axes:
                if axis in self.looped:
                    low, high = loop_bounds(evaluator, axis)
                    variable = self.w.name(f"{axis}_at")
                    head = f"for (i32 {variable} = {low}; {variable} < {high}; "
                    stack.enter_context(self.w.block(f"{head}{variable} += {self.tiles[axis]})"))
                    evaluator.origins[axis] = variable
                    later.append(f"{variable} != {low}")
            body.later = " || ".join(later)
            yield


def declare_tiles(w: Writer, evaluator: Evaluator, tiles: list[tuple[str, int]], block: str) -> int:
    """Split a block's number into tile origins, the last axis fastest; returns how many."""
    axes = evaluator.program.axes
    total = 1
    rest = block
    for axis, tile in reversed(tiles):
        count = -(-axes[axis] // tile)
        total *= count
        if count == 1:
            continue
        number = w.name(f"{axis}_tile")
        w.line(f"const i32 {number} = ({rest}) % {count};")
        rest = f"({rest}) / {count}"
        origin = w.name(f"{axis}_first")
        w.line(f"const i32 {origin} = {number} * {tile};")
        evaluator.origins[axis] = origin
    return total


def kernel_head(program: Program, name: str, threads: int, extra: str, resident: int = 0) -> str:
    """The signature of a kernel on plain pointers.

    With `resident`, it may take registers as long as so many blocks fit a processor.
    """
    parameters = []
    for spec in program.tensors:
        constness = "const " if spec.role == "input" else ""
        storage = scalars.STORAGE[spec.dtype]
        parameters.append(f"{constness}{storage}* __restrict__ {spec.name}")
    bounds = f"__launch_bounds__({threads}{f', {resident}' if resident else ''})"
    return f"TW_KERNEL {bounds} {extra}{name}({', '.join(parameters)})"
