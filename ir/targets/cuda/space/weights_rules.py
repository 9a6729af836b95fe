"""What a schedule must satisfy whose weights a group of its own makes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.kernel.turns import FREE
from ir.targets.cuda.bodies.apart import WEIGHTS, apart_problem, left_words
from ir.targets.cuda.bodies.tensor_order import LOADS, NEEDED, TURNS
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.role_rules import WIDEST
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.tensor_memory import WORD
from ir.targets.cuda.plans.tensor_plan import GROUP
from ir.targets.cuda.space.tensor_tiles import TensorTiles


class WeightsRules(TensorTiles):
    """Groups, registers and shared memory of what sums of a chain are multiplied by."""

    formed: tuple[Former, ...]
    weighs = True  # whether the engine has groups that make weights

    @cached_property
    def may_weigh(self) -> bool:
        """Whether a group of its own may make what sums are multiplied by."""
        wide = any(self.program.axes[axis] > WIDEST for axis in self.roles.columns)
        return self.weighs and not self.formed and wide and not apart_problem(self.walked_roles)

    def weights_decisions(self, owner: str) -> list[Decision]:
        """The decision, where there is a choice."""
        if not self.may_weigh:
            return []
        why = (
            "what the columns of a chain are multiplied by: 0, each of the groups that share them "
            "makes a part of it; else a group of its own does, and leaves it in so many slots"
        )
        name = self.name(WEIGHTS)
        return [Decision(name, (0, 1, 2), "pipeline", owner, why, 0, unsaid=0)]

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
        return ~apart | alone

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
        return panel & (parts == 0) & (self._columns(columns) > WIDEST) & pairs

    def _chain_registers(self, columns: Columns) -> Any:
        """Registers of a thread for a block of a chain: its inner products, and what is made of
        them."""
        rows = self._rows(columns) // self._consumers(columns, "rows")
        groups, roles = self._consumers(columns, "columns"), self.walked_roles
        block = rows * self._depth(columns) // self._makers(columns) // GROUP
        words = 1 if roles.added is None else len({p.a for p in roles.outer})
        fresh = 1 if roles.scores is not None else len(roles.inner)
        total = fresh * block + words * block // 2 * (groups == 1)
        return total + block // 4 * ~self._is_straight(columns)  # what two blocks need besides
