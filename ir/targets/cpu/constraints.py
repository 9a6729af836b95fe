"""The named constraints of the CPU target: what passes them lowers, compiles and fits.

Each is vectorised over columns and can say its numbers for one schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ir.schedule import Value
from ir.space import Columns, Constraint
from ir.targets.cpu.carried import CarriedLoops
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.instructions import DotRow, dot_row
from ir.targets.cpu.shape import OperandShape, StageShape

Check = Callable[[Columns], Any]
Reading = tuple[str, str, str, bool, bool]  # lanes, rows, instruction; legal packed, legal in place
TILE_REGISTERS = 8
MOST_BLOCKS = 1 << 16  # of a long sum; each has bounded runs of its own (`runs`)
MAX_BODY = 96  # register tile x unroll: larger bodies only cost compile time


class Constraints:
    """Collects constraints for one program."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.extents = decisions.extents
        self.names = {d.name for d in decisions.found}
        self.found: list[Constraint] = []

    def add(
        self, name: str, needs: str, check: Check, explain: Callable[[Mapping[str, Value]], str]
    ) -> None:
        self.found.append(Constraint(name, needs, check, explain))

    def all(self) -> tuple[Constraint, ...]:
        """Every constraint, in a fixed order."""
        for axis in self.decisions.blocked:
            self._nested(axis)
        self._trips()
        self.found += CarriedLoops(self.decisions).constraints()
        for shape in self.decisions.shapes:
            self._axes(shape)
            self._blocks(shape)
            if f"rows.{shape.stage.name}" in self.names:
                self._idle_rows(shape)
                self._registers(shape)
            if shape.product:
                self._tiles(shape)
                self._body(shape)
                for operand in shape.operands:
                    self._operand(shape, operand)
        return tuple(self.found)

    def number(self, columns: Columns, name: str, default: int = 1) -> Any:
        return columns[name] if name in self.names else default

    # -- loops

    def _nested(self, axis: str) -> None:
        inner, outer, extent = f"tile.{axis}.0", f"tile.{axis}.1", self.extents[axis]

        def check(columns: Columns) -> Any:
            small, large = columns[inner], columns[outer]
            return (
                (small < large)
                | ((small == extent) & (large == extent))
                | ((small == large) & (large < extent))
            )

        self.add(
            f"blocks-nest.{axis}",
            f"the inner block of {axis} fits the outer one",
            check,
            lambda s: f"inner block {s[inner]}, outer block {s[outer]}, extent {extent}",
        )

    def _trips(self) -> None:
        """Threads must have enough blocks to share."""
        extents = self.extents
        domain = next(d for d in self.decisions.found if d.name == "parallel").domain
        most = max(self._most_blocks(str(choice)) for choice in domain)
        threads = min(self.decisions.hardware.threads, most)
        if threads == 1 or domain == ("",):
            return

        def trips(columns: Columns, choice: str) -> Any:
            total: Any = np.ones(columns.rows, dtype=np.int64)
            for axis in choice.split():
                block = self.number(columns, f"tile.{axis}.1", extents[axis])
                inner = self.number(columns, f"tile.{axis}.0", extents[axis])
                block = np.where(block >= extents[axis], inner, block)
                total = total * -(-extents[axis] // np.maximum(block, 1))
            return total

        def check(columns: Columns) -> Any:
            good: Any = np.zeros(columns.rows, dtype=np.bool_)
            for choice in domain:
                good |= columns.is_("parallel", choice) & (trips(columns, str(choice)) >= threads)
            return good

        self.add(
            "enough-blocks",
            f"the parallel axes have at least {threads} blocks",
            check,
            lambda s: f"parallel over {s['parallel']!r}: fewer blocks than {threads} threads",
        )

    def _most_blocks(self, choice: str) -> int:
        """Blocks that threads can have of some axes at most."""
        domains = {d.name: d.domain for d in self.decisions.found}
        total = 1
        for axis in choice.split():
            names = [
                f"tile.{axis}.{level}" for level in (0, 1) if f"tile.{axis}.{level}" in domains
            ]
            least = min((int(domains[name][0]) for name in names), default=self.extents[axis])
            total *= -(-self.extents[axis] // least)
        return total

    def _blocks(self, shape: StageShape) -> None:
        """Each block of a sum in f32 is added to what those before it came to: where there are very
        many, that loses what is below its last place."""
        stage = shape.stage
        sums = any(a.kind == "sum" and a.dtype == "f32" for a in stage.accumulators)
        cut = [axis for axis in stage.reduce if f"tile.{axis}.0" in self.names]
        least = {d.name: min(d.domain) for d in self.decisions.found if d.group == "tile"}

        def blocks(size: Callable[[str], Any]) -> Any:
            total: Any = 1
            for axis in cut:
                total = total * -(-self.extents[axis] // size(f"tile.{axis}.0"))
            return total

        if not sums or blocks(lambda name: int(least[name])) <= MOST_BLOCKS:
            return
        self.add(
            f"blocks-added.{stage.name}",
            f"at most {MOST_BLOCKS:,} blocks are added up one after the other",
            lambda columns: blocks(lambda name: columns[name].astype(np.int64)) <= MOST_BLOCKS,
            lambda s: f"{blocks(lambda name: int(s[name])):,} blocks",
        )

    # -- register tiles

    def _axes(self, shape: StageShape) -> None:
        name = shape.stage.name
        lane, row = f"lane.{name}", f"row.{name}"

        def legal(lane_axis: str, row_axis: str) -> bool:
            if not row_axis:
                return (
                    not shape.rows
                    or not any(r != lane_axis for r in shape.rows)
                    or (not shape.product)
                )
            if row_axis == lane_axis:
                return False
            if lane_axis in shape.stage.reduce:
                return True
            return any(lane_axis in leaf and row_axis not in leaf for leaf in shape.leaf_axes)

        pairs = []
        for lanes in shape.lanes:
            rows = [one for one in ("", *shape.rows) if legal(lanes, one)]
            pairs += [(lanes, one) for one in rows or [""]]  # one row, where one operand has both

        def check(columns: Columns) -> Any:
            good: Any = np.zeros(columns.rows, dtype=np.bool_)
            for a, b in pairs:
                good |= columns.is_(lane, a) & columns.is_(row, b)
            return good

        self.add(
            f"register-axes.{name}",
            "lanes and rows run over axes of different operands",
            check,
            lambda s: f"lanes over {s[lane]}, rows over {s[row]!r}",
        )

    def _idle_rows(self, shape: StageShape) -> None:
        """No row axis means one row; no more rows than the axis is long."""
        name = shape.stage.name
        row, rows = f"row.{name}", f"rows.{name}"

        def check(columns: Columns) -> Any:
            good = columns.is_(row, "") & (columns[rows] == 1)
            for axis in shape.rows:
                good |= columns.is_(row, axis) & (columns[rows] <= self.extents[axis])
            return good

        self.add(
            f"rows-used.{name}",
            "rows of the register tile exist",
            check,
            lambda s: f"{s[rows]} rows over axis {s[row]!r}",
        )

    def _tile_mask(self, columns: Columns, shape: StageShape) -> Any:
        return self._using(columns, shape, lambda dot: dot.kind == "tile")

    def _using(self, columns: Columns, shape: StageShape, wanted: Callable[[DotRow], bool]) -> Any:
        """Where the stage's instruction is one that is wanted."""
        mask: Any = np.zeros(columns.rows, dtype=np.bool_)
        if f"instruction.{shape.stage.name}" in self.names:
            for dot in filter(wanted, shape.instructions):
                mask |= columns.is_(f"instruction.{shape.stage.name}", dot.name)
        return mask

    def _registers(self, shape: StageShape) -> None:
        name, most = shape.stage.name, self.decisions.vector.registers
        count = len(shape.stage.accumulators)
        rows, vectors = f"rows.{name}", f"vectors.{name}"
        moved = any(dot.moved for dot in shape.instructions)

        def need(r: Any, v: Any, sums: Any) -> Any:  # sums of the lanes beside, and a constant
            return count * r * v + v + (1 if shape.product else 2) + sums * (count * v + 1)

        def check(columns: Columns) -> Any:
            sums: Any = False
            if moved and f"micro.{name}" in self.names:  # where lanes are outside, once for all
                sums = self._using(columns, shape, lambda dot: dot.moved)
                sums &= columns.is_(f"micro.{name}", "lanes")
            needed = need(columns[rows], columns[vectors], sums)
            return (needed <= most) | self._tile_mask(columns, shape)

        def said(s: Mapping[str, Any]) -> str:
            sums = dot_row(str(s.get(f"instruction.{name}", "fma"))).moved
            sums = sums and s.get(f"micro.{name}") == "lanes"
            return f"{need(s[rows], s[vectors], sums)} needed, {most} there"

        self.add(
            f"registers.{name}",
            "accumulators and operands fit the vector registers",
            check,
            said,
        )

    def _tiles(self, shape: StageShape) -> None:
        """Tile units: accumulators, row operands and one lane operand in eight registers."""
        name = shape.stage.name
        if not any(dot.kind == "tile" for dot in shape.instructions):
            return
        count = len(shape.stage.accumulators)
        rows, vectors, row = f"rows.{name}", f"vectors.{name}", f"row.{name}"

        def need(r: Any, v: Any) -> Any:
            return count * r * v + min(2, count) * r + 1

        def check(columns: Columns) -> Any:
            fits = need(self.number(columns, rows), columns[vectors]) <= TILE_REGISTERS
            return (fits & ~columns.is_(row, "")) | ~self._tile_mask(columns, shape)

        self.add(
            f"tile-registers.{name}",
            "accumulator and operand tiles fit eight registers",
            check,
            lambda s: f"{need(s.get(rows, 1), s[vectors])} needed, {TILE_REGISTERS} there",
        )

    def _body(self, shape: StageShape) -> None:
        name, count = shape.stage.name, len(shape.stage.accumulators)
        rows, vectors, unroll = f"rows.{name}", f"vectors.{name}", f"unroll.{name}"

        def check(columns: Columns) -> Any:
            body = count * self.number(columns, rows) * columns[vectors] * columns[unroll]
            return body <= MAX_BODY

        self.add(
            f"body-size.{name}",
            f"at most {MAX_BODY} accumulations in the innermost loop",
            check,
            lambda s: f"{rows} x {vectors} x {unroll} is too large",
        )

    # -- operands

    def _operand(self, shape: StageShape, operand: OperandShape) -> None:
        """What an instruction asks of an operand that is used in place."""
        name = shape.stage.name
        pack, lane = f"pack.{name}.{operand.name}", f"lane.{name}"
        instruction = f"instruction.{name}"
        producer = self._producer_lane(operand)
        readings = self._readings(shape, operand)

        def check(columns: Columns) -> Any:
            good: Any = np.zeros(columns.rows, dtype=np.bool_)
            plain: Any = (
                columns.is_(pack, "no")
                if pack in self.names
                else np.ones(columns.rows, dtype=np.bool_)
            )
            for a, r, dot, packed, place in readings:
                here = (
                    columns.is_(lane, a)
                    & columns.is_(f"row.{name}", r)
                    & (columns.is_(instruction, dot))
                )
                good |= here & ((plain & place) | (~plain & packed))
            if producer in self.names:
                contiguous = columns.is_(producer, shape.main) | columns.is_(instruction, "fma")
                good &= ~plain | contiguous
            return good

        self.add(
            f"operand.{name}.{operand.name}",
            f"{instruction} can read {operand.name} as it is laid out",
            check,
            lambda s: (
                f"{s[instruction]} with lanes over {s[lane]} cannot read {operand.name} "
                f"(pack: {s.get(pack, 'no')})"
            ),
        )

    def _producer_lane(self, operand: OperandShape) -> str:
        """The decision over which axis the stage has its lanes that computes an operand; "" where
        none does."""
        owner = self.decisions.staged.producer.get(operand.node) if operand.buffered else None
        return "" if owner is None else f"lane.{self.decisions.staged.stages[owner].name}"

    def _readings(self, shape: StageShape, operand: OperandShape) -> list[Reading]:
        """Every way in which the stage may read an operand."""
        return [
            (a, r, dot.name, *self._legal(shape, operand, dot, a, r))
            for a in shape.lanes
            for r in ("", *shape.rows)
            for dot in shape.instructions
        ]

    def _legal(
        self, shape: StageShape, operand: OperandShape, dot: DotRow, lane: str, row: str
    ) -> tuple[bool, bool]:
        """Whether an operand may be read packed, and in place."""
        if dot.name == "fma":  # a panel is of points along the lanes or the innermost sum
            along = lane in operand.axes or shape.main in operand.axes
            return along and lane not in shape.stage.reduce and operand.packable, True
        if lane in shape.stage.reduce or not row or not self._fits(shape, dot, lane, row):
            return False, False
        near = operand.in_memory and operand.main_contiguous and lane not in operand.axes
        return operand.packable, near and self._whole(operand, shape, dot, row)

    def _fits(self, shape: StageShape, dot: DotRow, lane: str, row: str) -> bool:
        """Each product has one operand with lanes and one with rows, both with the reduction."""
        known = {o.node: o for o in shape.operands}
        for accumulator in shape.stage.accumulators:
            if any(term not in known for term in accumulator.terms):
                return False
            terms = [known[term] for term in accumulator.terms]
            sides = [term.axes for term in terms]
            if not all(shape.main in side for side in sides):
                return False
            if sum(lane in side for side in sides) != 1 or sum(row in side for side in sides) != 1:
                return False
            if any(lane in side and row in side for side in sides):
                return False
            by_row, by_lane = sorted(terms, key=lambda term: lane in term.axes)
            if not dot.multiplies(by_row.dtype, by_lane.dtype):
                return False
        return dot.acc == shape.stage.accumulators[0].dtype

    def _whole(self, operand: OperandShape, shape: StageShape, dot: DotRow, row: str) -> bool:
        """Reading in place must not run past the end: whole groups, and whole tiles of rows."""
        if dot.row != operand.dtype or dot.moved:
            return False
        group = dot.depth if dot.kind == "vector" else 64 // dot.element
        if self.extents[shape.main] % group:
            return False
        return dot.kind == "vector" or operand.buffered or self.extents[row] % 16 == 0
