"""What kernels on tensor cores need beside rings and sums: formers and sources, computed operands,
what is read ahead of a block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.columns import Columns
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.targets.cuda.bodies.tensor_bodies import early_loads
from ir.targets.cuda.bodies.tensor_order import AHEAD, LOADS, NEEDED, order_of, reads_early
from ir.targets.cuda.bodies.tensor_order import NAME as ORDER
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.plans.forming import SOURCE_LINES
from ir.targets.cuda.plans.planning import FORMERS
from ir.targets.cuda.plans.tensor_plan import ROWS
from ir.targets.cuda.space.weights_rules import WeightsRules


class FormedRules(WeightsRules):
    """Groups, shared memory and registers of what a block has beside its rings and sums."""

    formed: tuple[Former, ...]

    @property
    def orders(self) -> dict[str, str]:
        """Orders of the main loop, with what each does."""
        raise NotImplementedError

    def _reads_fit(self, columns: Columns) -> Any:
        if self.name(LOADS) not in columns:
            return np.ones(columns.rows, dtype=bool)
        fitting = {
            name: reads_early(self.roles, order_of(self.roles, name)) for name in self.orders
        }
        allowed = columns.lookup(self.name(ORDER), fitting) if fitting else True
        return self._is(columns, LOADS, NEEDED) | (allowed == 1)

    def _read_early(self, columns: Columns) -> Any:
        """Registers of a thread for what it reads ahead of a block."""
        if self.name(LOADS) not in columns:
            return 0
        rows = self._rows(columns) // self._consumers(columns, "rows") // (ROWS // 2)
        walk = self._depth(columns) // self._consumers(columns, "columns") // 4
        total = rows * 0
        for load in early_loads(self.roles):
            axes = {*self.program.nodes[load].axes}
            held = np.where(bool(axes & {*self.roles.rows}), rows, 1)
            total = total + held * walk
        return np.where(self._is(columns, LOADS, AHEAD), total, 0)

    def _warp_groups(self, columns: Columns) -> Any:
        """Those of a block: the producer, those that multiply, those that form operands or make
        weights."""
        others = self._value(columns, FORMERS) if self.formed else self._apart(columns)
        return 1 + self._value(columns, "consumers") + others

    def _source_size(self, operand: int) -> int:
        """Bytes of an element of what an operand is formed of; 0 if it is copied."""
        op = self.program.nodes[operand].op
        assert isinstance(op, Load)
        former = next((one for one in self.formed if one.tensor == op.tensor), None)
        return dtype_of(former.program.nodes[former.load].dtype).bytes if former else 0

    def _sources_fit(self, columns: Columns) -> Any:
        def whole(roles: Roles) -> Any:
            fine: Any = np.ones(columns.rows, dtype=bool)
            for operand, _ in self._operands(roles):
                run = self._run(columns, operand)[0]
                fine &= run * self._source_size(operand) % SOURCE_LINES[-1] == 0
            return fine

        return self._by_swap(columns, whole)

    def _widest(self, columns: Columns) -> Any:
        """Columns of the widest instruction."""
        inner = self._depth(columns) // self._makers(columns) if self.roles.inner else 0
        return np.maximum(self._columns(columns) // self._consumers(columns, "columns"), inner)
