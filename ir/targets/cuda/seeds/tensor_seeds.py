"""Schedules to start from: tiles and rings that do well on many shapes, fitted to a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from ir.kernel.turns import FREE, ISSUED
from ir.schedule import Value
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.bodies.apart import WEIGHTS
from ir.targets.cuda.bodies.tensor_bodies import is_chained
from ir.targets.cuda.bodies.tensor_order import NAME as ORDER
from ir.targets.cuda.bodies.tensor_order import TURNS
from ir.targets.cuda.build.products import volume
from ir.targets.cuda.build.role_rules import WIDEST
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid import batching, drawing
from ir.targets.cuda.grid.dealing import NAME as DEAL
from ir.targets.cuda.grid.dealing import deal_decision
from ir.targets.cuda.grid.drawing import scheduler_decision
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.planning import fixed_tiles
from ir.targets.cuda.plans.tensor_plan import RESIDENT, ROWS
from ir.targets.cuda.plans.tensor_rings import HELD, extra_names
from ir.targets.cuda.seeds.tensor_waves import Grid, best_tiles

if TYPE_CHECKING:
    from ir.targets.cuda.space.tensor import TensorKernel

APART = "32/160"  # registers of two groups of sums and one that makes what they are multiplied by
WIDE = 256  # points that a chain holds of each row, beyond which blocks of few keys fit
NEAR = 16  # batches whose longest tiles seeds deal together
IN_EVERY_ORDER = 12  # seeds of computed operands, the first ones, that are tried in every order
RESERVED = 2048  # bytes of shared memory for barriers and what crosses warps


class Seeds:
    """Seeds of one kernel; what does not fit is repaired or left out by the space."""

    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel = kernel

    def all(self) -> list[dict[str, Value]]:
        """Configurations that do well on many shapes, fitted to this program."""
        if self.kernel.roles.inner:
            rows = self._chains()
        elif self.kernel.roles.computed:
            rows = self._computed()
            first = [values | order for values in rows[:IN_EVERY_ORDER] for order in self._orders()]
            rows = first + rows[IN_EVERY_ORDER:]
        else:
            rows = [
                self.plain(128, 256, 2, 4, "1x1", "rows8"),
                self.plain(128, 256, 2, 4, "2x1", "rows8"),
                self.plain(256, 128, 2, 4, "1x2", "columns8"),
                *self._waves(False),
                *self._waves(True),
                self.plain(128, 128, 2, 6, "1x1", "rows8", partition="whole"),
                self.plain(128, 128, 2, 6, "1x1", "columns8", partition="whole"),
                self.plain(128, 192, 2, 4, "2x1", "rows8", partition="whole"),
                self.plain(256, 128, 2, 4, "1x1", "columns8"),
                self.plain(128, 192, 2, 4, "1x1", "rows8"),
                self.plain(128, 128, 2, 5, "1x1", "rows8"),
                self.plain(128, 128, 2, 5, "2x1", "rows8", partition="whole"),
                self.plain(64, 256, 1, 5, "1x1", "rows"),
                self.plain(64, 64, 1, 10, "1x1", "rows"),
                self.plain(64, 64, 1, 6, "1x1", "rows", lines=2),
                self.plain(64, 128, 1, 7, "1x1", "rows"),
                self.plain(64, 128, 1, 9, "2x1", "rows"),
                self.plain(64, 128, 1, 4, "2x1", "rows", lines=2),
                self.plain(128, 64, 2, 8, "1x2", "rows"),
                self.plain(64, 32, 1, 12, "1x1", "rows"),
                self.plain(128, 128, 1, 4, "1x1", "columns"),
                self.plain(64, 16, 1, 12, "1x1", "rows"),
                self.plain(64, 8, 1, 12, "1x1", "rows"),
                self.plain(128, 256, 2, 4, "2x1", "patch16x8"),
                self.plain(256, 128, 2, 4, "1x1", "patch8x16"),
            ]
            if self.kernel.swapped is not None:
                rows += [
                    self.plain(64, n, 1, 12 // lines, "1x1", "rows", True, lines=lines)
                    for n in (8, 16, 32, 64)
                    for lines in (1, 2, 4)
                ]
                rows += [
                    self.plain(64, n, 1, 8, cluster, "rows", True)
                    for n in (64, 128)
                    for cluster in ("1x1", "2x1", "4x1")
                ]
            rows = self._whole(False) + self._whole(True) + rows
            if self.kernel.roles.folded:
                rows = self._folded(rows)
            rows += [one for row in rows if (one := self._in_order(row)) != row]
            rows += self._drawn(rows)
            rows = [one for row in rows for one in self._batches(row)]
        return [row for row in rows if row]

    def _in_order(self, row: dict[str, Value]) -> dict[str, Value]:
        """A seed whose tiles go in the one order that there is, where they are one row or one
        column."""
        kernel, axes = self.kernel, self.kernel.program.axes
        swap, raster = row[kernel.name("swap")], kernel.name("raster")
        roles = kernel.swapped if swap and kernel.swapped else kernel.roles
        counts = (
            prod(-(-axes[axis] // int(row.get(kernel.name(f"tile.{axis}"), 1))) for axis in side)
            for side in (roles.rows, roles.columns)
        )
        lone = volume(kernel.program, roles.batch) == 1 and 1 in counts
        return {**row, raster: "rows"} if lone else row

    def _batches(self, row: dict[str, Value]) -> Iterator[dict[str, Value]]:
        """Batches that share an operand beside each other, and as they are."""
        kernel = self.kernel
        name = kernel.name(batching.NAME)
        decision = batching.batches_decision(name, "", kernel.streamed, kernel.roles)
        if decision is not None:
            yield {**row, decision.name: batching.BESIDE}
        yield row

    def _chains(self) -> list[dict[str, Value]]:
        """Chained products: tiles of rows and blocks, in every order, with turns and without."""
        shapes: tuple[tuple[int, int, int], ...] = (
            (128, 2, 128), (128, 2, 176), (128, 2, 64), (192, 3, 128), (64, 1, 64),
            (192, 3, 64),
        )  # fmt: skip
        held = {frozenset(product.over): product.over for product in self.kernel.roles.inner}
        if sum(volume(self.kernel.program, over) for over in held.values()) > WIDE:
            shapes = ((64, 1, 32), (64, 1, 16), (128, 2, 16), *shapes)
        elif len(held) > 1:
            shapes = ((128, 2, 96), *shapes)
        if self.kernel.roles.added is not None:  # operands of several products at a time
            shapes = (*shapes, (64, 1, 32))
        if volume(self.kernel.program, self.kernel.roles.rows) <= ROWS:  # which one group has
            shapes = tuple(dict.fromkeys(((ROWS, 1, 128), (ROWS, 1, 64), *shapes)))
        rows = [self._chained(*shape) for shape in shapes]
        if volume(self.kernel.program, self.kernel.roles.columns) > WIDEST:
            rows = [*self._of_columns(), *rows]
        rows = [values | order for values in rows for order in self._orders()]
        rows = [values | turns for values in rows for turns in self._turns(values)]
        rows = [values | self._dealt() for values in (*rows, *self._apart())]
        rows = self._drawn(rows) + rows
        rows += self._shared_processors(rows)
        rows += [values | more for values in rows[:2] for more in self._rings()]
        return rows

    def _of_columns(self) -> list[dict[str, Value]]:
        """Two groups that share a tile's columns."""
        names = ("partition", "epilogue", "epilogue_slots")
        chosen: tuple[Value, ...] = ("columns", "direct", 1)
        split = dict(zip(map(self.kernel.name, names), chosen, strict=True))
        return [self._chained(ROWS, 2, block) | split for block in (64, 32)]

    def _apart(self) -> list[dict[str, Value]]:
        """The same with a group that makes what these multiply by, in one slot and in two."""
        name, registers = self.kernel.name(WEIGHTS), self.kernel.name("registers")
        if not self.kernel.may_weigh:
            return []
        shared = self._of_columns()
        return [{**one, name: slots, registers: APART} for one in shared for slots in (1, 2)]

    def _shared_processors(self, rows: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Blocks of one group of consumers, several to a processor: short tiles wait at both ends
        while others multiply."""
        name = self.kernel.name
        ways = ((2, "none", 12), (4, "24/104", 2), (3, "24/136", 3), (2, "24/232", 4))
        choices: list[dict[str, Value]] = [
            {name("processors"): 0, name(RESIDENT): blocks, name("registers"): registers}
            for blocks, registers, _ in ways
        ]
        found = [
            {**one, **choice, name("stages"): min(int(one[name("stages")]), most)}
            for choice, (*_, most) in zip(choices, ways, strict=True)
            for one in rows
            if one[name("consumers")] == 1
        ]
        direct: dict[str, Value] = {name("epilogue"): "direct", name("epilogue_slots"): 1}
        staged = [one for one in found if one[name("epilogue")] != "direct"]
        return found + [one | direct for one in staged]  # with room for one more block

    def _folded(self, rows: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Tiles are narrower than others', so what blocks share counts more; in every order."""
        shared = [self.plain(128, 128, 2, 6, c, "rows8") for c in ("2x1", "1x2", "2x2")]
        shared += [self.plain(256, 128, 2, 4, c, "columns8") for c in ("2x1", "1x2")]
        return [values | order for values in shared + rows for order in self._orders()]

    def _whole(self, swap: bool) -> list[dict[str, Value]]:
        """Tiles of all columns, where results are combined along these."""
        roles, program = self.kernel.swapped if swap else self.kernel.roles, self.kernel.program
        if roles is None or len(roles.columns) > 1:
            return []
        products = {product.position for product in roles.products}
        combined = {
            axis
            for position, node in enumerate(program.nodes)
            if is_reduction(node) and position not in products
            for axis in reduced_axes(node)
        }
        wide = -(-volume(program, roles.columns) // 8) * 8 * len(roles.sums)
        if not combined & {*roles.columns} or wide > WIDEST:
            return []
        return [
            self.plain(rows, wide, consumers, 6, cluster, "rows", swap)
            for rows, consumers in ((128, 2), (64, 1), (192, 3))
            for cluster in ("1x1", "2x1")
        ]

    def _waves(self, swap: bool) -> list[dict[str, Value]]:
        """Tiles that fill whole waves of this card's processors, where the usual ones do not."""
        roles = self.kernel.swapped if swap else self.kernel.roles
        if roles is None or len(roles.rows) > 1 or len(roles.columns) > 1:
            return []
        volumes = (roles.rows, roles.columns, roles.walked, roles.batch)
        rows, columns, depth, batches = (volume(self.kernel.program, axes) for axes in volumes)
        grid = Grid(rows, columns, depth, batches, len(roles.sums), self.kernel.size)
        sms = int(self.kernel.hardware["sms"])
        found = []
        for partition in ("whole", "rows"):
            for tile in best_tiles(grid, sms, whole=partition == "whole"):
                wide = tile.columns * grid.products
                clusters = ("1x1", "2x1") if tile.columns % 16 == 0 else ("1x1",)
                found += [
                    self.plain(
                        tile.rows, wide, tile.consumers, 6, cluster, "rows8", swap, partition
                    )
                    for cluster in clusters
                ]
        return found

    def _computed(self) -> list[dict[str, Value]]:
        """Rows are what is computed, so few columns are few points of the other operand.

        Wide tiles compute a row once for many columns; narrow ones, several to a processor, hide
        in each other what they wait for.
        """
        axes = self.kernel.program.axes
        columns = prod(axes[axis] for axis in self.kernel.roles.columns)
        found = []
        for wide in sorted({min(-(-columns // 8) * 8, most) for most in (32, 64, 128)}):
            found += [
                self.plain(64, wide, 1, 12 // lines, "1x1", "rows", lines=lines)
                for lines in (2, 1, 4)
            ]
            found.append(self.plain(128, wide, 2, 8, "1x1", "rows"))
            found.append(self.plain(128, wide, 2, 4, "1x1", "rows", lines=2))
            found.append(self.plain(128, wide, 1, 6, "1x1", "rows"))
        every, read = self.kernel.name("processors"), self.kernel.name("read")
        found += [{**one, every: 0} for one in found] + self._shared_processors(found)
        steps = self.kernel.name("steps")
        walk = self.kernel.name(f"tile.{self.kernel.roles.main_walk}")
        inside = prod(axes[axis] for axis in self.kernel.roles.whole)
        for one in found:
            one[steps] = max(1, int(one[walk]) * inside * self.kernel.size // LINE * 2)
        if self.kernel.roles.raw:
            found += [{**one, steps: 1, read: "block"} for one in found]
        large = [self.plain(128, 256, 2, 4, cluster, "rows8") for cluster in ("1x1", "2x1", "1x2")]
        large += [self.plain(128, 192, 2, 4, "2x1", "rows8", partition="whole")]
        large += [self.plain(256, 128, 2, 4, cluster, "columns8") for cluster in ("1x1", "1x2")]
        large += [self.plain(128, 128, 2, 5, "2x1", "rows8", partition="whole")]
        return large + found if columns > 128 else found + large

    def _split_tile(self, axes: tuple[str, ...], wanted: int) -> dict[str, Value] | None:
        """A tile of `wanted` points over axes, the last one first."""
        values: dict[str, Value] = {}
        for number, axis in enumerate(reversed(axes)):
            extent = self.kernel.program.axes[axis]
            last = number == len(axes) - 1
            part = wanted
            if not last and extent < wanted:
                part = 1 << (extent.bit_length() - 1)
                part = min(part, wanted)
            values[self.kernel.name(f"tile.{axis}")] = part
            wanted //= part
        return values

    def _rows_of(self, roles: Roles, wanted: int, values: dict[str, Value]) -> int:
        """Whole rows of the main axis: the fewest of whole steps of the instruction, or as many as
        make up so many points; how many points these are."""
        name, kernel = self.kernel.name(f"tile.{roles.listed}"), self.kernel
        extent = kernel.program.axes[roles.main_walk]
        rows = (n for n in kernel.tile_domain(roles.listed) if n * extent % kernel.step == 0)
        fitting = [n for n in rows if kernel.program.axes[roles.listed] % n == 0] or [1]
        values[kernel.name(f"tile.{roles.main_walk}")] = extent
        values[name] = next((n for n in fitting if n * extent >= wanted), fitting[0])
        return int(values[name]) * extent

    def plain(
        self, rows: int, columns: int, consumers: int, stages: int, cluster: str, raster: str,
        swap: bool = False, partition: str = "rows", lines: int = 1, beyond: bool = False,
    ) -> dict[str, Value]:  # fmt: skip
        """A seed of tiles of so many points. Columns that there are not are for nothing, but where
        a tile has to be shared in so many parts (`beyond`)."""
        roles = self.kernel.swapped if swap else self.kernel.roles
        assert roles is not None
        values: dict[str, Value] = {}
        values |= self._split_tile(roles.rows, rows) or {}
        values |= {self.kernel.name(f"tile.{axis}"): 1 for axis in roles.columns}
        last = roles.columns[-1]
        whole = -(-self.kernel.program.axes[last] // 8) * 8
        wide = max(8, columns // len(roles.sums) // 8 * 8)
        values[self.kernel.name(f"tile.{last}")] = wide if beyond else min(wide, whole)
        walk = roles.main_walk
        extent = self.kernel.program.axes[walk]
        inside = prod(self.kernel.program.axes[axis] for axis in roles.whole)
        tile = LINE // self.kernel.size
        while tile > 32 // self.kernel.size and tile >= 2 * extent * inside:
            tile //= 2
        most = extent * inside + (1 if roles.computed else 0)
        if tile * self.kernel.size == LINE and lines * tile < most:
            tile *= lines
        if roles.at_once:
            tile = fixed_tiles(roles)[walk]
        elif roles.listed:
            tile = self._rows_of(roles, tile * lines, values)
        else:
            values[self.kernel.name(f"tile.{walk}")] = tile // inside
        slot = (rows + max(columns, 64)) * max(LINE, tile * self.kernel.size)
        buffers = 1 if rows * columns > 128 * 192 else 2
        room = self.kernel.hardware["shared_bytes"] - RESERVED - buffers * consumers * ROWS * LINE
        stages = max(2, min(stages, room // slot))
        split = {1: "none", 2: "40/232", 3: "32/160"}[consumers]
        direct = "tma" if self.kernel.store_by_tma() else "direct"
        found = values | self._rest(swap, consumers, stages, split, cluster, raster, direct)
        found[self.kernel.name("partition")] = partition
        found[self.kernel.name("promotion")] = 128 if min(rows, columns) <= ROWS else 256
        found[self.kernel.name("epilogue_slots")] = buffers if direct == "tma" else 1
        return found

    def _rest(
        self, swap: bool, consumers: int, stages: int, split: str, cluster: str, raster: str,
        epilogue: str,
    ) -> dict[str, Value]:  # fmt: skip
        roles = self.kernel.roles
        processors = self.kernel.processors()[2 if cluster != "1x1" else 1]
        pairs: dict[str, Value] = {
            "swap": swap, "consumers": consumers, "partition": "rows", "stages": stages,
            "wait": int(not (roles.inner or roles.computed or roles.around)),
            "registers": split, "cluster": cluster,
            "raster": raster, "processors": processors, "epilogue": epilogue,
            "epilogue_slots": 2 if epilogue == "tma" else 1, "promotion": 256, "stream": "none",
        }  # fmt: skip
        return {self.kernel.name(name): value for name, value in pairs.items()}

    def _rings(self) -> list[dict[str, Value]]:
        """Other depths of rings: what a tile holds twice, so that the next tile's comes while this
        one ends; and a shorter ring behind it.
        """
        found: list[dict[str, Value]] = []
        for name, stem in extra_names(self.kernel.program, self.kernel.roles):
            choice = {self.kernel.name(stem): 1 if name == HELD else -1}
            found += [{**one, **choice} for one in ({}, *found)]
        return found

    def _orders(self) -> list[dict[str, Value]]:
        """Orders of the loop: those first that overlap blocks."""
        return [{self.kernel.name(ORDER): order} for order in reversed(self.kernel.orders)] or [{}]

    def _dealt(self) -> dict[str, Value]:
        """Tiles of unequal length: the longest first, of as many batches as share a cache."""
        kernel = self.kernel
        deal = deal_decision(kernel.name(DEAL), "", kernel.streamed, kernel.roles)
        return {deal.name: min(deal.domain[-1], NEAR)} if deal is not None else {}

    def _drawn(self, rows: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Seeds whose blocks stay, with tiles of unequal length one by one, the longest first."""
        kernel = self.kernel
        name = kernel.name(drawing.NAME)
        if scheduler_decision(name, "", kernel.streamed, kernel.roles) is None:
            return []
        choice: dict[str, Value] = {**self._dealt(), name: drawing.DYNAMIC}
        return [row | choice for row in rows if row and row[kernel.name("processors")]]

    def _turns(self, values: Mapping[str, Value]) -> list[dict[str, Value]]:
        """Whether the groups of a chain take turns: first as they come."""
        if not is_chained(self.kernel.roles):
            return [{}]
        alone = values.get(self.kernel.name("consumers")) == 1
        return [{self.kernel.name(TURNS): when} for when in ((FREE,) if alone else (FREE, ISSUED))]

    def _chained(self, rows: int, consumers: int, block: int) -> dict[str, Value]:
        values, roles = self._split_tile(self.kernel.roles.rows, rows) or {}, self.kernel.roles
        if len(roles.walked) > 1:  # blocks end where the innermost axis does
            extent = self.kernel.program.axes[roles.main_walk]
            if roles.listed:
                values[self.kernel.name(f"tile.{roles.listed}")] = max(1, block // extent)
            block = min(block, -(-extent // self.kernel.step) * self.kernel.step)
        values[self.kernel.name(f"tile.{roles.main_walk}")] = block
        split = {1: "none", 2: "24/240", 3: "32/160"}[consumers]
        direct = "tma" if self.kernel.store_by_tma() else "direct"
        return values | self._rest(False, consumers, 2, split, "1x1", "rows", direct)
