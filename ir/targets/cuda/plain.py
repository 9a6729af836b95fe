"""Plain kernels: folds, tops, scatters and states along an axis, each as `ir.plain` writes it.

A point is a thread's, or a block's whose threads share the loops of its body. A group's arrays are
in shared memory as far as they fit, and in the workspace beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.plain.code import GROUP, TENSOR, Array, PlainKernel
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.plain_fold import scratch_bytes
from ir.targets.cuda.plain_shape import folds_of

THREADS, FOLD, RUN = "threads", "fold", "run"
THREAD, BLOCK = "thread", "block"
_UNIT = 16  # bytes that arrays of a group begin at multiples of
_GROUPS = 32  # blocks for each processor, over which a group's points are spread
_FEW_GROUPS = 4  # the same where each has memory of its own in the workspace
_MOST_BLOCKS = 1 << 20
_LONG = 512  # iterations of a fold from which blocks come first among seeds


class PlainCudaKernel:
    """Decisions, constraints, seeds and lowering of one plain kernel. `mark` ends its names.

    `program` is the phase that `plain` computes.
    """

    kind = "plain"

    def __init__(self, program: Program, plain: PlainKernel, mark: str, hardware: Hardware) -> None:
        self.program, self.plain, self.mark, self.hardware = program, plain, mark, hardware
        self.folds = folds_of(plain)
        self.points = prod(extent for _, extent in plain.points)

    # -- the space

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    @property
    def chooses(self) -> bool:
        """Whether a point may be a thread's or a block's."""
        return bool(self.folds) and not self.plain.cooperative

    def decisions(self) -> list[Decision]:
        owner = next(iter(self.program.axes), "")
        found = [Decision(self.name(THREADS), (32, 64, 128, 256, 512), "binding", owner,
                          "threads of a block", 128)]  # fmt: skip
        if self.chooses:
            why = "who goes along the axis: a thread for each point, or a block in chunks"
            found.append(Decision(self.name(FOLD), (THREAD, BLOCK), "binding", owner, why))
        if self.folds:
            why = "neighbours along the axis that a thread of a block takes at a time"
            found.append(Decision(self.name(RUN), (1, 2, 4, 8), "binding", owner, why))
        return found

    def constraints(self) -> list[Constraint]:
        if not self.chooses:
            return []
        fold, run = self.name(FOLD), self.name(RUN)

        def check(columns: Columns) -> Any:
            return columns.is_(fold, BLOCK) | (columns[run] == 1)

        def explain(values: Mapping[str, Value]) -> str:
            return f"{run}={values[run]} with {fold}={values[fold]}"

        needs = "only threads of a block take neighbours of each other"
        return [Constraint(run, needs, check, explain, reads=(fold, run))]

    def seeds(self) -> list[dict[str, Value]]:
        """Blocks first where points are few or the axis is long."""
        if not self.folds:
            return [{self.name(THREADS): threads} for threads in (128, 256, 64, 512)]
        blocks = [self._seed(*one) for one in ((256, 4), (128, 8), (256, 1), (64, 4), (512, 4))]
        if not self.chooses:
            return blocks
        alone = [self._seed(threads, 1, THREAD) for threads in (128, 64, 256)]
        longest = max(fold.extent for fold in self.folds)
        few = self.points < 64 * int(self.hardware["sms"])
        return blocks + alone if few or longest >= _LONG else alone + blocks

    def _seed(self, threads: int, run: int, way: str = BLOCK) -> dict[str, Value]:
        found: dict[str, Value] = {self.name(THREADS): threads, self.name(RUN): run}
        return found | ({self.name(FOLD): way} if self.chooses else {})

    def grouped(self, columns: Columns) -> Any:
        """Where a point is a block's."""
        if self.chooses:
            return columns.is_(self.name(FOLD), BLOCK)
        return np.full(columns.rows, self.plain.cooperative)

    # -- a schedule

    def is_grouped(self, values: Mapping[str, Value]) -> bool:
        return self.plain.cooperative or values.get(self.name(FOLD)) == BLOCK

    @cached_property
    def most_scratch(self) -> int:
        """Shared memory that folds take with the most threads."""
        return scratch_bytes(self.folds, 512)

    @cached_property
    def shared(self) -> tuple[Array, ...]:
        """A group's arrays that lie in shared memory: the small ones first."""
        left = int(self.hardware["shared_bytes"]) - self.most_scratch
        found = []
        for array in sorted(self._group, key=array_bytes):
            left -= array_bytes(array)
            if left >= 0:
                found.append(array)
        return tuple(found)

    @cached_property
    def spilled(self) -> tuple[Array, ...]:
        """A group's arrays in the workspace."""
        return tuple(array for array in self._group if array not in self.shared)

    @property
    def _group(self) -> tuple[Array, ...]:
        return tuple(array for array in self.plain.arrays if array.place == GROUP)

    @property
    def local(self) -> tuple[Array, ...]:
        """Arrays of a thread."""
        return tuple(a for a in self.plain.arrays if a.place not in (GROUP, TENSOR))

    def grid(self, threads: int, grouped: bool) -> int:
        """Blocks, which stride over the points if they are fewer."""
        if not grouped:
            return min(-(-self.points // threads), _MOST_BLOCKS)
        each = _FEW_GROUPS if self.spilled else _GROUPS
        return min(self.points, each * int(self.hardware["sms"]))

    def lower(self, values: Mapping[str, Value], name: str) -> Launch:
        from ir.targets.cuda.plain_lower import PlainLowering

        return PlainLowering(self, values, name).run()


def array_bytes(array: Array) -> int:
    """Memory of an array, up to where the next one may begin."""
    return -(-array.size * dtype_of(array.dtype).bytes // _UNIT) * _UNIT
