"""The decisions that the CPU target derives from any staged program.

One decision is one entry beside the axis, stage or operand it schedules. Constraints are in
`constraints.py`, schedules to start from in `seeds.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from math import prod

from ir.ops.load import Load
from ir.program import Program
from ir.residence import Residence
from ir.schedule import Value
from ir.space import Decision
from ir.stages import StagedProgram
from ir.target import Hardware
from ir.targets.cpu.instructions import VectorRow
from ir.targets.cpu.shape import REDUCED, SMALL, StageShape, outer_axes, shared_axes

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
MAX_ORDERED = 4
SHORT = 8  # of an axis up to that long, blocks may be single coordinates
MOST_SHORT = 2  # such axes that threads share
WORTH_SHARING = 1 << 16  # points of a stage
PACKS = ("no", "0", "1", "2")


class Decisions:
    """Collects decisions for one `program`, which is `staged` in a residence."""

    def __init__(
        self,
        staged: StagedProgram,
        shapes: tuple[StageShape, ...],
        hardware: Hardware,
        vector: VectorRow,
        splits: tuple[str, ...],
        program: Program,
        residence: Residence,
    ) -> None:
        self.splits, self.program, self.residence = splits, program, residence
        self.staged, self.shapes, self.hardware, self.vector = staged, shapes, hardware, vector
        self.extents = staged.program.axes
        self.outer = outer_axes(staged, shapes)
        self.shared = shared_axes(staged)
        self.blocked = self._blocked_axes()
        self.found: list[Decision] = []

    def _blocked_axes(self) -> tuple[str, ...]:
        """Axes worth two loop levels, longest first, at most MAX_ORDERED; short ones where threads
        would have none to share."""
        candidates = []
        for axis, extent in self.extents.items():
            if axis in self.outer or extent == 1:
                continue
            reduced = any(axis in s.reduce for s in self.staged.stages)
            limit = REDUCED if reduced else SMALL
            if extent > limit or (axis in self.shared and extent > 8):
                candidates.append(axis)
        short: list[str] = []
        works = (prod(self.extents[a] for a in s.domain) for s in self.staged.stages)
        serial = not self.outer and not set(candidates) & set(self.shared)
        if serial and max(works, default=0) >= WORTH_SHARING:
            few = sorted(self.shared, key=lambda a: (-self._reads(a), -self.extents[a]))
            short = few[:MOST_SHORT]
        longest = sorted(candidates, key=lambda a: -self.extents[a])
        kept = (*short, *longest[: MAX_ORDERED - len(short)])
        return tuple(a for a in self.extents if a in kept)

    def _reads(self, axis: str) -> int:
        """Of how many loads it is an axis: of what is not, threads would read all."""
        nodes = self.staged.program.nodes
        return sum(isinstance(node.op, Load) and axis in node.axes for node in nodes)

    def add(
        self,
        name: str,
        domain: Iterable[Value],
        group: str,
        owner: str,
        why: str,
        initial: Value | None = None,
        unsaid: Value | None = None,
    ) -> None:
        values = tuple(dict.fromkeys(domain))
        if initial is not None and initial not in values:
            initial = values[0]
        self.found.append(Decision(name, values, group, owner, why, initial, unsaid=unsaid))

    def all(self) -> tuple[Decision, ...]:
        """Every decision, in a fixed order."""
        self._tiles()
        self._orders()
        self._threads()
        for shape in self.shapes:
            self._stage(shape)
        self.add(
            "stream",
            (False, True),
            "epilogue",
            "outputs",
            "stores that bypass the cache, for outputs that nobody reads soon",
            False,
        )
        return tuple(self.found)

    # -- loops

    def _sizes(self, axis: str) -> tuple[int, ...]:
        extent = self.extents[axis]
        least = 8 if self.only_reduced(axis) else 4  # as many pages as prefetchers follow well
        least = 1 if extent <= SHORT else least
        return (*(s for s in SIZES if least <= s < extent), extent)

    def only_reduced(self, axis: str) -> bool:
        return all(axis in s.reduce for s in self.staged.stages if axis in s.domain)

    def _tiles(self) -> None:
        for axis in self.outer:
            extent = self.extents[axis]
            self.add(
                f"tile.{axis}.1",
                [s for s in (1, 2, 4) if s <= extent],
                "tile",
                axis,
                f"how many {axis} one task handles",
                1,
            )
        for axis in self.blocked:
            sizes = self._sizes(axis)
            self.add(
                f"tile.{axis}.1",
                sizes,
                "tile",
                axis,
                f"outer block of {axis}: what the second-level cache or a thread holds",
                self._near(sizes, 384 if self.only_reduced(axis) else 512),
            )
            self.add(
                f"tile.{axis}.0",
                sizes,
                "tile",
                axis,
                f"inner block of {axis}: what the first-level cache holds",
                self._near(sizes, 384 if self.only_reduced(axis) else 96),
            )

    def _near(self, sizes: tuple[int, ...], wanted: int) -> int:
        return min(sizes, key=lambda size: abs(size - wanted))

    def _orders(self) -> None:
        if not self.blocked:
            return
        prefix = " ".join(self.outer)
        orders = [" ".join(p) for p in itertools.permutations(self.blocked)]
        outer = [f"{prefix} {o}".strip() for o in orders]
        self.add(
            "order.1",
            outer,
            "order",
            "program",
            "nesting of the outer blocks, outermost first",
            outer[0],
        )
        self.add("order.0", orders, "order", "program", "nesting of the inner blocks", orders[0])

    def _threads(self) -> None:
        choices: list[str] = []
        if self.hardware.threads > 1:
            blocked = [a for a in self.shared if a in self.blocked]
            if self.outer:
                choices += [" ".join(self.outer), *(" ".join((*self.outer, a)) for a in blocked)]
            choices += [*blocked, *(" ".join(p) for p in itertools.permutations(blocked, 2))]
        self.add(
            "parallel",
            choices or [""],
            "binding",
            "program",
            "axes whose outermost blocks threads share",
            (choices or [""])[0],
        )
        self.add(
            "chunk",
            ("block", "cyclic", "dynamic") if choices else ("block",),
            "binding",
            "program",
            "how blocks are dealt out to threads",
            "block",
        )
        if len(self.splits) > 1:
            self.add(
                "split",
                self.splits,
                "split",
                "program",
                "a reduced axis in parts, one thread each, merged afterwards",
                "none",
                "none",
            )

    # -- stages

    def _stage(self, shape: StageShape) -> None:
        name = shape.stage.name
        what = ", ".join(shape.stage.domain)
        self.add(
            f"lane.{name}",
            shape.lanes,
            "binding",
            name,
            f"vector axis of the stage over {what}",
            shape.lanes[0],
        )
        rows = ("", *shape.rows) if shape.rows else ("",)
        self.add(
            f"row.{name}",
            rows,
            "binding",
            name,
            "axis of the register tile's rows",
            self._row(shape),
        )
        if shape.rows:
            limit = max(self.extents[a] for a in shape.rows)
            self.add(
                f"rows.{name}",
                [r for r in ROWS if r <= limit],
                "tile",
                name,
                "rows of the register tile",
                min(6, limit) if shape.product and self._row(shape) else 1,
            )
        self.add(
            f"vectors.{name}", self._vectors(shape), "tile", name, "vectors of the register tile", 2
        )
        if shape.product:
            self._product(shape)

    def _row(self, shape: StageShape) -> str:
        """One that the largest operand with the lanes lacks, so that its vectors serve all rows; or
        one that another with them lacks; none where all have it, unless lanes are summed."""
        lane = shape.lanes[0]
        rows = [r for r in shape.rows if r != lane]
        having = sorted((x for x in shape.leaf_axes if lane in x), key=self._volume, reverse=True)
        apart = [r for x in having for r in rows if r not in x]
        summed = rows if lane in shape.stage.reduce else []
        return (apart or summed or [""])[0]

    def _volume(self, axes: frozenset[str]) -> int:
        return math.prod(self.extents[axis] for axis in axes)

    def _vectors(self, shape: StageShape) -> list[int]:
        longest = max(self.extents.get(axis, 1) for axis in shape.lanes)
        most = max(1, -(-longest // self.vector.lanes))
        return [v for v in (1, 2, 3, 4, 6, 8) if v <= most]

    def _product(self, shape: StageShape) -> None:
        name = shape.stage.name
        self.add(
            f"micro.{name}",
            ("rows", "lanes"),
            "order",
            name,
            "which register tiles of a block are neighbours: along rows or along lanes",
            "rows",
        )
        self.add(
            f"instruction.{name}",
            [row.name for row in shape.instructions],
            "tensorize",
            name,
            "instruction that multiplies and accumulates",
            shape.instructions[-1].name,
        )
        self.add(
            f"unroll.{name}",
            (1, 2, 4),
            "pipeline",
            name,
            "reduction steps in one iteration of the innermost loop",
            1,
        )
        self.add(
            f"prefetch.{name}",
            (0, 4, 8, 16),
            "pipeline",
            name,
            "reduction steps by which the lane operand is touched ahead",
            0,
        )
        for operand in shape.operands:
            if operand.packable:
                self.add(
                    f"pack.{name}.{operand.name}",
                    PACKS,
                    "layout",
                    operand.name,
                    "copied to panels inside the inner loops (0), the outer loops (1), "
                    "before all loops (2), or used in place",
                    "no" if operand.buffered else "1",
                )
