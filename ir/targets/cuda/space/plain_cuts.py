"""Decisions on how the work of plain kernels is cut: owners, pieces, elements all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.plain.build import choices_of, plain_kernels
from ir.plain.pieces import WHOLE, Choices, Ways
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.build.plain_step import PlainStep

OWNERS, PIECES, ATOMIC = "owners", "pieces", "atomic"
_OWNERS = (1 << 12, 1 << 15, 1 << 18)
_PIECES = (8, 32, 128, 512, 2048, 8192, 32768)
_MORE = 4  # times as many points, as are worth a choice
_LEAST = 16  # coordinates of a piece of what is sent
_LEAST_FOLDED = 64  # coordinates of a piece of a fold
_FEW = 8  # points for each processor, below which folds leave it without work
_FEW_THREADS = 1024  # the same where each is a thread's
MOST_PARTS = 8 << 30
"""Bytes that the parts of pieces may take; a share of the card's memory where it has less."""


class PlainCuts:
    """The decisions of one phase. `mark` ends their names; `choices`: those of the program, unless
    they are given."""

    def __init__(
        self, program: Program, mark: str, hardware: Hardware, choices: Choices | None = None
    ) -> None:
        self.program, self.mark, self.hardware = program, mark, hardware
        self.choices = choices_of(program) if choices is None else choices
        self.most = min(MOST_PARTS, int(hardware["memory_bytes"]) // 8)
        self.sms = int(hardware["sms"])
        self.domains = dict(self._domains())

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    def _domains(self) -> Iterator[tuple[str, tuple[Value, ...]]]:
        if not self.choices.longest:
            return
        if self.choices.atomic:
            yield ATOMIC, (False, True)
        counts = [1]
        for owners in _OWNERS if self.choices.owners else ():
            before = self._points(Ways(owners=counts[-1]))
            if self._points(Ways(owners=owners)) >= _MORE * before:
                counts.append(owners)
        if len(counts) > 1:
            yield OWNERS, tuple(counts)
        least = _LEAST if self.choices.owners else _LEAST_FOLDED
        pieces = tuple(count for count in _PIECES if count * least <= self.choices.longest)
        if pieces and (self.choices.owners or self._points(WHOLE) < self._enough()):
            yield PIECES, (1, *pieces)

    def _enough(self) -> int:
        """Points of a fold from which on all processors have work: threads, where neighbours read
        what lies side by side, else blocks."""
        (whole,) = plain_kernels(self.program, WHOLE)
        return (_FEW_THREADS if PlainStep(whole, self.hardware).beside else _FEW) * self.sms

    def _points(self, ways: Ways) -> int:
        return max(
            prod(extent for _, extent in one.points) for one in plain_kernels(self.program, ways)
        )

    def decisions(self) -> list[Decision]:
        whys = {
            ATOMIC: "elements are combined in memory at once, not by who owns the place",
            OWNERS: "points among which the output is shared out: each goes through all",
            PIECES: "parts of the longest axis, each by itself, merged in order",
        }
        owner = next(iter(self.program.axes), "")
        return [
            Decision(self.name(name), domain, "binding", owner, whys[name], domain[0],
                     unsaid=domain[0])
            for name, domain in self.domains.items()
        ]  # fmt: skip

    def all(self) -> Iterator[dict[str, Value]]:
        """Every way to cut, by the names of decisions."""
        names = [self.name(name) for name in self.domains]
        for values in product(*self.domains.values()):
            cut = dict(zip(names, values, strict=True))
            if not (self.ways(cut).atomic and self.ways(cut).owners > 1):
                yield cut

    def rows(self, columns: Columns) -> Iterator[tuple[NDArray[np.bool_], Ways]]:
        """Rows of schedules that cut alike, and how."""
        if not self.domains or not columns.rows:
            yield np.ones(columns.rows, dtype=bool), WHOLE
            return
        codes = np.stack([columns.codes(self.name(name)) for name in self.domains], axis=1)
        for found in np.unique(codes, axis=0):
            pairs = zip(self.domains.items(), found, strict=True)
            values = {self.name(name): domain[int(code)] for (name, domain), code in pairs}
            yield (codes == found).all(axis=1), self.ways(values)

    def ways(self, values: Mapping[str, Value]) -> Ways:
        """How the kernels of a schedule are cut."""
        if not self.domains:
            return WHOLE
        return Ways(
            owners=int(values.get(self.name(OWNERS), 1)),
            pieces=int(values.get(self.name(PIECES), 1)),
            atomic=bool(values.get(self.name(ATOMIC), False)),
        )

    def constraints(self, room: Callable[[int], int]) -> list[Constraint]:
        found = []
        if PIECES in self.domains:
            found.append(self._bounded(room))
        if ATOMIC in self.domains and OWNERS in self.domains:
            found.append(self._no_owners())
        return found

    def _bounded(self, room: Callable[[int], int]) -> Constraint:
        name = self.name(PIECES)
        sizes = {pieces: room(int(pieces)) for pieces in self.domains[PIECES]}

        def check(columns: Columns) -> Any:
            return columns.lookup(name, sizes) <= self.most

        def explain(values: Mapping[str, Value]) -> str:
            pieces = int(values[name])
            return f"{pieces} pieces take {sizes[pieces]:,} bytes, {self.most:,} at most"

        needs = "what pieces leave for the merge has room"
        return Constraint(name, needs, check, explain, reads=(name,))

    def _no_owners(self) -> Constraint:
        owners, atomic = self.name(OWNERS), self.name(ATOMIC)

        def check(columns: Columns) -> Any:
            return columns.is_(atomic, False) | (columns[owners] == 1)

        def explain(values: Mapping[str, Value]) -> str:
            return f"{owners}={values[owners]} with {atomic}={values[atomic]}"

        needs = "nobody owns a part of what elements are combined in at once"
        return Constraint(owners, needs, check, explain, reads=(owners, atomic))


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor."""
    return prod(spec.shape) * dtype_of(spec.dtype).bytes
