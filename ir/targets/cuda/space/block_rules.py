"""What the choices of a block kernel beside its tile need: rules over columns of schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import tables_of
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.schedule import Value
from ir.space import Columns, Constraint
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.readers import loaded_late, read_again
from ir.targets.cuda.grid.overlap import NAME as EARLY
from ir.targets.cuda.grid.overlap import PREFETCH
from ir.targets.cuda.lower.block_lower import SCRATCH_ROOM
from ir.targets.cuda.lower.block_parts import FLAG_BYTES, shared_loops
from ir.targets.cuda.space.block_clusters import (
    MOST_BLOCKS,
    NONE,
    SPREAD,
    blocks_along,
    cluster_of,
    is_spread,
)
from ir.targets.cuda.space.block_options import (
    AHEAD,
    FIRST,
    KEEP,
    LOADS,
    PARTS,
    WAITS,
    WALKERS,
    copies_words,
)
from ir.targets.cuda.space.block_options import REGISTERS as IN_REGISTERS
from ir.targets.cuda.text.registers import SCRATCH_BYTES
from ir.targets.cuda.text.transfers import LEAST_COPY

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

Array = NDArray[np.float64]
THREADS = 2048  # of a processor
REGISTERS = 65536  # of a processor
OWN_REGISTERS = 40  # of a thread, beside its values
LEAST_REGISTERS = 24  # the same where a compiler that has to can do with few
MOST_TERMS = 1 << 17  # of a sum, of which a thread loses 2e-5 by then
LARGEST = 1024  # threads of a block
RESERVED = 1024  # bytes of shared memory that each block takes


class OptionRules:
    """Rules of one kernel's choices; a rule stands only where its decision does."""

    def __init__(self, kernel: BlockKernel) -> None:
        self.kernel, self.program = kernel, kernel.program
        self.offered = {decision.name for decision in kernel.options}

    def constraints(self) -> list[Constraint]:
        rules = {
            KEEP: ("values are kept where several readers of one walk share them", self._keep),
            LOADS: ("loads come first where no walk changes them", self._first),
            PREFETCH: ("kernels ask before their turn if they start early, for several steps if "
                       "they walk", self._prefetch),
            AHEAD: ("words of a walk along one axis, or of tiles that blocks walk, are copied "
                    "ahead", self._ahead),
            WAITS: ("one step that is ahead may wait in registers, if they suffice", self._waits),
            PARTS: ("blocks share the walk of one axis if each has a step", self._parts),
            SPREAD: (f"2 to {MOST_BLOCKS} blocks hold an axis whole, and walk nothing",
                     self._spread),
            WALKERS: ("blocks that walk have two tiles or more and fit their processor",
                      self._walkers),
        }  # fmt: skip
        found = [
            Constraint(self.kernel.name(name), needs, check, self._explain)
            for name, (needs, check) in rules.items()
            if self.kernel.name(name) in self.offered
        ]
        needs = "what is ahead and where warps meet fit the shared memory"
        found.append(Constraint(self.kernel.name("shared"), needs, self._shared, self._room))
        if self._sums_many:
            needs = f"a thread adds {self._most_terms:,} numbers of f32 at most, one by one"
            found.append(Constraint(self.kernel.name("terms"), needs, self._few, self._explain))
        return found

    def _explain(self, values: Mapping[str, Value]) -> str:
        name = self.kernel.name
        stems = (KEEP, LOADS, PREFETCH, AHEAD, WAITS, WALKERS, PARTS, SPREAD)
        chosen = [f"{stem} {values[name(stem)]}" for stem in stems if name(stem) in values]
        early = f", early {values[EARLY]}" if EARLY in values else ""
        tiles = ", ".join(f"{a} {values[name(f'tile.{a}')]}" for a in self.program.axes)
        return f"{', '.join(chosen)}{early}; tiles {tiles}, {self.kernel.threads(values)} threads"

    def _room(self, values: Mapping[str, Value]) -> str:
        decisions = [d for d in self.kernel.decisions() if d.name in values]
        row = [decision.index(values[decision.name]) for decision in decisions]
        columns = Columns(tables_of(decisions), np.array([row], dtype=np.int16))
        blocks = max(1, int(self._value(columns, WALKERS)[0]))
        need, have = int(self.bytes(columns)[0]), self.kernel.hardware["shared_bytes"]
        return (
            f"{need:,} bytes of shared memory in each of {blocks} blocks of a processor, which "
            f"has {have:,}"
        )

    def _value(self, columns: Columns, stem: str) -> Any:
        name = self.kernel.name(stem)
        return columns[name] if name in self.offered else np.zeros(columns.rows, dtype=np.int64)

    # -- checks

    def _keep(self, columns: Columns) -> Any:
        walks = self._walks_that_keep
        return (self._value(columns, KEEP) == 0) | self._walks_one_of(columns, walks)

    def _first(self, columns: Columns) -> Any:
        wanted = columns.is_(self.kernel.name(LOADS), FIRST)
        return ~wanted | self._walks_one_of(columns, self._walks_with_fixed_loads)

    @cached_property
    def _walks_that_keep(self) -> tuple[frozenset[str], ...]:
        shape = self.kernel.shape
        return tuple(looped for looped in shape.loops if read_again(shape.streamed(looped)))

    @cached_property
    def _walks_with_fixed_loads(self) -> tuple[frozenset[str], ...]:
        found = []
        for looped in self.kernel.shape.loops:
            program = self.kernel.shape.streamed(looped)
            if any(not looped & set(program.nodes[p].axes) for p in loaded_late(program)):
                found.append(looped)
        return tuple(found)

    @property
    def _reduced(self) -> int:
        """How many elements each result is reduced of."""
        return prod(self.program.axes[axis] for axis in self.kernel.shape.reduced)

    @property
    def _most_terms(self) -> int:
        """Of a sum that a thread may have; more where large blocks leave it more."""
        return max(MOST_TERMS, self._reduced // LARGEST)

    @property
    def _sums_many(self) -> bool:
        """Whether a thread might add up so many that a part of each is lost, always to one side."""
        nodes = self.program.nodes
        sums = any(
            is_reduction(node) and node.dtype == "f32" and getattr(node.op, "kind", "sum") == "sum"
            for node in nodes
        )
        return sums and self._reduced > self._most_terms

    def _few(self, columns: Columns) -> Any:
        terms: Any = np.ones(columns.rows)
        for axis in self.kernel.shape.reduced:
            tile, own = (columns[self.kernel.name(f"{stem}.{axis}")] for stem in ("tile", "own"))
            terms = terms * np.ceil(self.program.axes[axis] / tile) * own
        return terms <= self._most_terms * np.maximum(self._value(columns, PARTS), 1)

    def _walks_one_of(self, columns: Columns, walks: Sequence[frozenset[str]]) -> Any:
        """Whether the axes that are walked are one of these sets."""
        found: Any = np.zeros(columns.rows, dtype=bool)
        for looped in walks:
            here: Any = np.ones(columns.rows, dtype=bool)
            for axis in self.kernel.shape.reduced:
                short = self.kernel.short(columns, axis)
                here = here & (short if axis in looped else ~short)
            found = found | here
        return found

    def _prefetch(self, columns: Columns) -> Any:
        steps = self._value(columns, PREFETCH)
        walks = (self._value(columns, WALKERS) > 0) | (self._walked(columns) == 1)
        early = columns[EARLY] > 0 if EARLY in columns else np.ones(columns.rows, dtype=bool)
        return (steps == 0) | (early & ((steps == 1) | walks))

    def _ahead(self, columns: Columns) -> Any:
        walked = self._walked(columns)
        walks = (walked == 1) | ((walked == 0) & (self._value(columns, WALKERS) > 0))
        return (self._value(columns, AHEAD) == 0) | (walks & self._words(columns))

    def _walked(self, columns: Columns) -> Any:
        """How many axes are walked."""
        return columns.derived(("walked", self.kernel.mark), self._walks)

    def _walks(self, columns: Columns) -> Any:
        found: Any = np.zeros(columns.rows, dtype=np.int64)
        for axis in self.kernel.shape.reduced:
            found = found + self.kernel.short(columns, axis)
        return found

    def _words(self, columns: Columns) -> Any:
        """Whether some load is taken in 4 bytes or more at a time."""
        found: Any = np.zeros(columns.rows, dtype=bool)
        vector = columns[self.kernel.name("vector")]
        for position in self._copied:
            op = self.program.nodes[position].op
            assert isinstance(op, Load)
            size = dtype_of(self.program.nodes[position].dtype).bytes
            for axis in (a for a, c in op.index[-1].terms if c == 1):
                along = columns.is_(self.kernel.name("lanes"), axis)
                found = found | (along & (vector * size >= LEAST_COPY))
            found = found | (size == LEAST_COPY)
        return found

    @cached_property
    def _copied(self) -> tuple[int, ...]:
        """Loads that may be ahead."""
        nodes = range(len(self.program.nodes))
        return tuple(position for position in nodes if copies_words(self.program, position))

    def _waits(self, columns: Columns) -> Any:
        """A word of what waits holds an element or several: at most what its values hold."""
        held = columns.is_(self.kernel.name(WAITS), IN_REGISTERS)
        words: Any = np.zeros(columns.rows)
        for position in self._copied:
            node = self.program.nodes[position]
            size = self.kernel.count(columns, node.axes) * dtype_of(node.dtype).bytes
            words = words + size * self._moves(columns, node.axes) // LEAST_COPY
        total = (self.kernel.held(columns) + words + LEAST_REGISTERS) * self.kernel.threads(columns)
        fits = total * np.maximum(self._value(columns, WALKERS), 1) <= REGISTERS
        return ~held | ((self._value(columns, AHEAD) == 1) & fits)

    def _parts(self, columns: Columns) -> Any:
        parts = self._value(columns, PARTS)
        alone = (self._walked(columns) == 1) & (self._value(columns, WALKERS) == 0)
        shares: Any = np.zeros(columns.rows, dtype=bool)
        for axis in shared_loops(self.program):
            tile = columns[self.kernel.name(f"tile.{axis}")]
            steps = np.ceil(self.program.axes[axis] / tile)
            shares = shares | ((tile < self.program.axes[axis]) & (steps >= parts))
        fits = self._tiles(columns) * parts < 2**31
        return (parts == 1) | (alone & shares & fits)

    def _spread(self, columns: Columns) -> Any:
        alone = (self._walked(columns) == 0) & (self._value(columns, WALKERS) == 0)
        alone = alone & (self._value(columns, PARTS) <= 1)
        fits: Any = columns.is_(self.kernel.name(SPREAD), NONE)
        for axis in self.kernel.spread:
            blocks = blocks_along(self.kernel, columns, axis)
            here = alone & (blocks > 1) & (blocks <= MOST_BLOCKS)
            fits = fits | (is_spread(self.kernel, columns, axis) & here)
        return fits & (self._tiles(columns) * cluster_of(self.kernel, columns) < 2**31)

    def _tiles(self, columns: Columns) -> Any:
        tiles: Any = np.ones(columns.rows)
        for axis, extent in self.program.axes.items():
            if axis not in self.kernel.shape.reduced:
                tiles = tiles * np.ceil(extent / columns[self.kernel.name(f"tile.{axis}")])
        return tiles

    def _walkers(self, columns: Columns) -> Any:
        walkers = self._value(columns, WALKERS)
        threads = self.kernel.threads(columns)
        tiles = self._tiles(columns)
        held = self.kernel.held(columns) + OWN_REGISTERS
        enough = (tiles > walkers * self.kernel.hardware["sms"]) & (tiles < 2**30)
        fits = (threads * walkers <= THREADS) & (held * threads * walkers <= REGISTERS)
        return (walkers == 0) | (enough & fits)

    def _shared(self, columns: Columns) -> Any:
        have = self.kernel.hardware["shared_bytes"]
        blocks = np.maximum(self._value(columns, WALKERS), 1)
        return (self.bytes(columns) + RESERVED) * blocks <= have + RESERVED

    def bytes(self, columns: Columns) -> Any:
        """Shared memory of a block, at most: the ring, and where warps meet."""
        ring: Any = np.zeros(columns.rows)
        for position in self._copied:
            node = self.program.nodes[position]
            size = self.kernel.count(columns, node.axes) * dtype_of(node.dtype).bytes
            ring = ring + size * self._moves(columns, node.axes)
        threads = self.kernel.threads(columns)
        if self.kernel.name(WAITS) in self.offered:
            ring = ring * ~columns.is_(self.kernel.name(WAITS), IN_REGISTERS)
        both = ring * self._value(columns, AHEAD) + self._scratch(columns)
        return both * threads + FLAG_BYTES

    def _moves(self, columns: Columns, axes: Sequence[str]) -> Any:
        """Whether a value over `axes` is another one in each step of a walk."""
        key = ("moves", self.kernel.mark, tuple(axes))
        return columns.derived(key, lambda columns: self._changes(columns, axes))

    def _changes(self, columns: Columns, axes: Sequence[str]) -> Any:
        walked = self._walked(columns)
        found: Any = np.zeros(columns.rows, dtype=bool)
        for axis in axes:
            short = self.kernel.short(columns, axis)
            reduced = axis in self.kernel.shape.reduced
            found = found | (short & ((walked == 1) if reduced else (walked == 0)))
        return found

    def _scratch(self, columns: Columns) -> Any:
        """Bytes of a thread's places, at most: as many as may be asked for, while there is room."""
        room = SCRATCH_ROOM // np.maximum(self.kernel.threads(columns), 1)
        most: Any = np.zeros(columns.rows)
        all_places: Any = np.zeros(columns.rows)
        for reductions in self._reductions:
            more = cluster_of(self.kernel, columns) > 1  # a place for what other blocks read
            counts = [(self.kernel.count(columns, axes), over + more) for axes, over in reductions]
            total = sum(count * over for count, over in counts)
            all_places = np.maximum(all_places, total * SCRATCH_BYTES)
            for count, _ in counts:
                most = np.maximum(most, count * SCRATCH_BYTES)
        return np.maximum(most, np.minimum(all_places, room))

    @cached_property
    def _reductions(self) -> tuple[tuple[tuple[tuple[str, ...], int], ...], ...]:
        """For each set of axes that may be walked, its reductions: (axes, places they may take)."""
        programs = [self.kernel.shape.streamed(looped) for looped in self.kernel.shape.loops]
        return tuple(_places(program) for program in programs)


def _places(program: Program) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Axes of each reduction, and how often it meets in a place of its own: along each axis that it
    reduces, each time that a reader forms it."""
    formed = dict.fromkeys(range(len(program.nodes)), 0)
    for position in reversed(range(len(program.nodes))):
        node = program.nodes[position]
        times = 1 if isinstance(node.op, Store) else formed[position]
        for arg in node.args:
            formed[arg] += times
    return tuple(
        (node.axes, len(reduced_axes(node)) * formed[position])
        for position, node in enumerate(program.nodes)
        if is_reduction(node)
    )
