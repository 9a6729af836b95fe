"""Loads that only the epilogue of a kernel on wgmma reads (bias, residual): when they happen.

`needed`: where the epilogue reads them, behind its barriers, so that consumers wait for memory once
for every panel. `first`: what has a value for each point of the tile is asked for beside the first
products, and waits in registers; what varies along the columns alone comes one panel ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ir.columns import Decision
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program
from ir.rewrite.domain import live_range
from ir.targets.cuda.block_options import FIRST, NEEDED, copies_words
from ir.targets.cuda.frame import Digit
from ir.targets.cuda.readers import loaded_late
from ir.targets.cuda.roles import Roles
from ir.targets.cuda.transfers import LEAST_COPY, Staged

if TYPE_CHECKING:
    from ir.targets.cuda.tensor_consumer import TensorEvaluator


def late_loads(program: Program, roles: Roles) -> tuple[int, ...]:
    """Loads that no product waits for, whose neighbours along the columns fill words."""
    if roles.inner or len(list(program.stores())) > 1:
        return ()
    found = []
    for position in sorted(loaded_late(program)):
        op = program.nodes[position].op
        assert isinstance(op, Load)
        plain = op.fill is None and copies_words(program, position)
        if plain and {axis for axis, c in op.index[-1].terms if c == 1} & set(roles.columns):
            found.append(position)
    return tuple(found)


def late_decision(name: str, owner: str) -> Decision:
    why = "loads that no product waits for: where needed, or before the tile's products"
    return Decision(name, (NEEDED, FIRST), "pipeline", owner, why, NEEDED, unsaid=NEEDED)


def late_bytes(program: Program, roles: Roles) -> int:
    """Bytes that late loads bring for each point of a tile."""
    sides = {*roles.rows, *roles.columns}
    nodes = [program.nodes[position] for position in late_loads(program, roles)]
    return sum(dtype_of(n.dtype).bytes for n in nodes if sides <= set(n.axes))


@dataclass(frozen=True, slots=True)
class Panel:
    """Up to 128 bytes of columns of one block of 64 rows: what a buffer of outputs takes.

    `fixed` are the digits of `block`; `first` and `count` are groups of 8 columns.
    """

    number: int
    block: int
    fixed: dict[Digit, str]
    first: int
    count: int


class LateLoads:
    """Words that wait in registers for the epilogue of one tile."""

    def __init__(self, evaluator: TensorEvaluator, digit: Digit) -> None:
        self.e, self.digit = evaluator, digit
        plan = evaluator.plan
        used = plan.loads == FIRST and plan.epilogue == "tma" and not plan.store_turned
        found = late_loads(evaluator.program, plan.roles) if used else ()
        sides = {*plan.roles.rows, plan.column_axis}
        nodes = evaluator.program.nodes
        self.whole = tuple(p for p in found if sides <= set(nodes[p].axes))
        self.narrow = tuple(p for p in found if p not in self.whole and self._along_columns(p))
        self.words: dict[tuple[int, int], str] = {}
        self.waiting: list[tuple[int, Panel]] = []

    def _along_columns(self, position: int) -> bool:
        return self.e.plan.column_axis in self.e.nodes[position].axes

    def __bool__(self) -> bool:
        return bool(self.whole or self.narrow)

    def begin(self, panels: Sequence[Panel]) -> None:
        """Before the products: registers for all that the panels need, and what is asked for
        now. Where there are blocks enough, each panel's loads go beside the products of one:
        before the first, nothing would hide how long they take to be issued.
        """
        wanted = [(position, panel) for panel in panels for position in self.whole]
        wanted += [(position, panels[0]) for position in self.narrow]
        wanted = [one for one in wanted if self._in_words(*one)]
        for position, panel in wanted:
            self._declare(position, panel)
        self.waiting = wanted if self._blocks() > len(panels) else []
        if not self.waiting:
            for position, panel in wanted:
                self._fetch(position, panel)

    def beside(self, block: str) -> None:
        """Beside the products of a block: the loads of the panel that has its number."""
        for number in sorted({panel.number for _, panel in self.waiting}):
            with self.e.w.block(f"if ({block} == {number})"):
                for position, panel in self.waiting:
                    if panel.number == number:
                        self._fetch(position, panel)

    def _blocks(self) -> int:
        """Blocks that every tile is sure to walk; 0 if operands come through registers."""
        plan, program = self.e.plan, self.e.program
        if plan.from_registers or any(live_range(program, axis) for axis in plan.roles.walked):
            return 0
        blocks = prod(-(-program.axes[axis] // plan.tiles[axis]) for axis in plan.roles.walked)
        return blocks // plan.parts

    def ahead(self, panels: Sequence[Panel], now: Panel) -> None:
        """Ask for what the panel behind this one needs."""
        for panel in panels[now.number + 1 : now.number + 2]:
            for position in self.narrow:
                if self._in_words(position, panel):
                    self._declare(position, panel)
                    self._fetch(position, panel)

    def _declare(self, position: int, panel: Panel) -> None:
        e = self.e
        name = e.w.name(f"{e.label_of(position)}_panel")
        self.words[position, panel.number] = name
        size = e.width(position) * dtype_of(e.nodes[position].dtype).bytes
        kind = "u32" if size == LEAST_COPY else "tw_vec8"
        e.w.line(f"{kind} {name}[{panel.count * self._each(position, panel)}];")

    def _fetch(self, position: int, panel: Panel) -> None:
        e = self.e
        variable = e.w.name("c")
        with e.w.unrolled(variable, panel.count):
            fixed = {**panel.fixed, self.digit: f"({panel.first} + {variable})"}
            e.fixed.update(fixed)
            e.fetch_ahead(position, self._staged(position, panel, variable))
            for key in fixed:
                del e.fixed[key]

    def _in_words(self, position: int, panel: Panel) -> bool:
        size = dtype_of(self.e.nodes[position].dtype).bytes
        return self.e.width(position) * size >= LEAST_COPY and panel.count > 0

    def _each(self, position: int, panel: Panel) -> int:
        """Words of a load in one group of columns."""
        fixed = {*panel.fixed, self.digit}
        own = [d for d in self.e.own(self.e.nodes[position].axes) if d not in fixed]
        return prod(d.size for d in own) // self.e.width(position)

    def _staged(self, position: int, panel: Panel, group: str) -> Staged:
        name, each = self.words[position, panel.number], self._each(position, panel)
        return Staged(words=f"({name} + {group} * {each})")

    def take(self, panel: Panel, group: str) -> None:
        """From now on, loads of a group of columns take what was fetched."""
        for position, number in self.words:
            if number == panel.number:
                self.e.staged[position] = self._staged(position, panel, group)
