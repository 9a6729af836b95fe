"""What a schedule must satisfy whose weights a group of its own makes."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.kernel.turns import FREE
from ir.ops.load import Load
from ir.targets.cuda.bodies.apart import ISSUED, KEEPS, KEPT, WEIGHTS, apart_problem, left_words
from ir.targets.cuda.bodies.tensor_order import LOADS, NEEDED, TURNS
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.role_rules import WIDEST
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.arriving import ARRIVALS
from ir.targets.cuda.plans.tensor_memory import WORD
from ir.targets.cuda.plans.tensor_plan import GROUP, ROWS
from ir.targets.cuda.space.tensor_sources import FRAGMENT
from ir.targets.cuda.space.tensor_tiles import TensorTiles


class WeightsRules(TensorTiles):
    """Groups, registers and shared memory of what sums of a chain are multiplied by."""

    formed: tuple[Former, ...]
    weighs = True  # whether the engine has groups that make weights

    @cached_property
    def may_weigh(self) -> bool:
        """Whether a group of its own may make what sums are multiplied by."""
        wide = any(self.program.axes[axis] >= WIDEST for axis in self.roles.columns)
        return self.weighs and not self.formed and wide and not apart_problem(self.walked_roles)

    def weights_decisions(self, owner: str) -> list[Decision]:
        """The decisions, where there is a choice."""
        if not self.may_weigh:
            return []
        why = (
            "what the columns of a chain are multiplied by: 0, each of the groups that share them "
            "makes a part of it; else a group of its own does, and leaves it in so many slots"
        )
        slots = Decision(self.name(WEIGHTS), (0, 1, 2), "pipeline", owner, why, 0, unsaid=0)
        why = "parts in which the tiles of a slot arrive: products begin with the first of them"
        parts = Decision(self.name(ARRIVALS), (1, 2, 4), "pipeline", owner, why, 1, unsaid=1)
        why = "steps of the first inner product whose rows that group keeps in registers"
        steps = tuple(n for n in KEEPS if n <= self._held_steps)
        kept = Decision(self.name(KEPT), steps, "pipeline", owner, why, 0, unsaid=0)
        why = (
            "whether inner products of a block begin before that group goes on with the one before"
        )
        name = self.name(ISSUED)
        ahead = Decision(name, (False, True), "pipeline", owner, why, False, unsaid=False)
        return [slots, parts, kept, ahead]

    def _issued_ahead(self, columns: Columns) -> Any:
        if self.name(ISSUED) not in columns:
            return np.zeros(columns.rows, dtype=bool)
        return self._value(columns, ISSUED) == 1

    @property
    def _held_steps(self) -> int:
        """Instructions along the sum of the first inner product."""
        product = self.roles.inner[0]
        held = isinstance(self.program.nodes[product.a].op, Load)
        two = dtype_of(self.roles.dtype_of(product)).bytes == 2
        return prod(self.program.axes[axis] for axis in product.over) // 16 * (held and two)

    def _kept_steps(self, columns: Columns) -> Any:
        return self._value(columns, KEPT) if self.name(KEPT) in columns else 0

    def _left_slots(self, columns: Columns) -> Any:
        """Slots in which weights are left; 0 where no group of its own makes them."""
        if self.name(WEIGHTS) not in columns:
            return np.zeros(columns.rows, dtype=np.int64)
        return self._value(columns, WEIGHTS)

    def _apart(self, columns: Columns) -> Any:
        return self._left_slots(columns) > 0

    def _weights_fit(self, columns: Columns) -> Any:
        """Whether groups that share columns do nothing else beside each other."""
        apart = self._apart(columns)
        alone = self._is(columns, "partition", "columns") & self._is_straight(columns)
        if self.name(TURNS) in columns:
            alone = alone & self._is(columns, TURNS, FREE)
        if self.name(LOADS) in columns:
            alone = alone & self._is(columns, LOADS, NEEDED)
        whole = self._value(columns, ARRIVALS) == 1 if self.name(ARRIVALS) in columns else True
        whole = whole & (self._kept_steps(columns) == 0) & ~self._issued_ahead(columns)
        return (~apart & whole) | (apart & alone)

    def _makers(self, columns: Columns) -> Any:
        """Groups that make a part each of what columns are multiplied by."""
        return np.where(self._apart(columns), 1, self._consumers(columns, "columns"))

    def _words(self, columns: Columns, roles: Roles) -> Any:
        """Bytes of computed operands that consumers leave for each other, or have left."""
        count, slots = len({product.a for product in roles.outer}), self._left_slots(columns)
        rows = self._side(columns, roles.rows)
        tile = count * rows * self._tile(columns, roles.main_walk) * self.size
        shared = self._consumers(columns, "columns") > 1
        left = 0
        if self.may_weigh:
            left = slots * rows * WORD * left_words(self.walked_roles)
        words = -(-tile * np.maximum(slots, 1) // 1024) * 1024
        return np.where(shared, words + left, 0)

    def _stores_words(self, columns: Columns) -> Any:
        """Whether consumers may have columns of a chain each: more than one group holds, and blocks
        whose computed operand has lines of one panel."""
        tile = self._tile(columns, self.roles.main_walk)
        line, parts = tile * self.size, tile % (8 * self._makers(columns))
        panel = (line == LINE) | (line == LINE // 2) | (line == LINE // 4)
        pairs = self.size == 2
        wide = self._columns(columns)
        many = (wide > WIDEST) | ((wide == WIDEST) & self._apart(columns))
        return panel & (parts == 0) & many & pairs

    def _chain_registers(self, columns: Columns) -> Any:
        """Registers of a thread for a block of a chain: its inner products, and what is made of
        them."""
        rows = self._rows(columns) // self._consumers(columns, "rows")
        groups, roles = self._consumers(columns, "columns"), self.walked_roles
        block = rows * self._depth(columns) // self._makers(columns) // GROUP
        words = 1 if roles.added is None else len({p.a for p in roles.outer})
        fresh = (1 if roles.scores is not None else len(roles.inner)) * (
            1 + self._issued_ahead(columns)
        )
        total = fresh * block + words * block // 2 * (groups == 1)
        total = total + self._kept_steps(columns) * rows // ROWS * FRAGMENT
        return total + block // 4 * ~self._is_straight(columns)  # what two blocks need besides
