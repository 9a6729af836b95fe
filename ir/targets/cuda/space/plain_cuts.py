"""Decisions on how the work of plain kernels is cut: owners, pieces, elements all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.plain.build import choices_of, plain_kernels
from ir.plain.code import PlainKernel
from ir.plain.overlap_space import Offer, OverlapCuts
from ir.plain.pieces import WHOLE, Choices, Ways, parts_in
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.plain.plain_step import PlainStep

OWNERS, PIECES, ATOMIC = "owners", "pieces", "atomic"
ORDERED, SHARED, PRIVATE = "ordered", "shared", "private"
_OWNERS = (1 << 12, 1 << 15, 1 << 18)
_PIECES = (8, 32, 128, 512, 2048, 8192, 32768)
_MORE = 4  # times as many points, as are worth a choice
_LEAST = 16  # coordinates of a piece of what is sent
_LEAST_FOLDED = 64  # coordinates of a piece of a fold
_FEW = 8  # points for each processor, below which folds leave it without work
_FEW_THREADS = 1024  # the same where each is a thread's
_TILES = Offer(
    (256, 512, 1024, 2048, 4096), (32, 64, 128, 256),
    {2: (16, 32, 64, 128), 3: (8, 16, 32), 0: (4, 8)},
    (1, 4, 8), (1, 2, 4), 0, (1, 2, 4),
)  # fmt: skip
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
        windows = self.choices.windows
        offer = replace(_TILES, room=int(hardware["shared_bytes"]))
        self.overlaps = OverlapCuts(windows, offer, self.name) if windows else None
        self.domains = dict(self._domains())

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    def _domains(self) -> Iterator[tuple[str, tuple[Value, ...]]]:
        if self.overlaps is not None:
            yield from self.overlaps.domains.items()
        if not self.choices.longest:
            return
        if self.choices.atomic:
            yield ATOMIC, (False, True)
        if self.choices.ordered:
            yield ORDERED, (False, True)
        if self.choices.shared:
            yield SHARED, (False, True)
        if self.choices.private:
            yield PRIVATE, (False, True)
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
        """Points that share what is sent, folded or searched, behind which others may follow."""
        first = plain_kernels(self.program, ways)[0]
        return prod(extent for _, extent in first.points)

    def decisions(self) -> list[Decision]:
        whys = {
            ATOMIC: "elements are combined in memory at once, not by who owns the place",
            ORDERED: "all elements are put in order first, in a few kernels",
            PRIVATE: "threads of a block combine in shared memory that is their own",
            SHARED: "a block searches a row, or combines in memory of its own before",
            OWNERS: "points among which the output is shared out: each goes through all",
            PIECES: "parts of the longest axis, each by itself, merged in order",
        } | (self.overlaps.whys() if self.overlaps else {})
        owner = next(iter(self.program.axes), "")
        return [
            Decision(self.name(name), domain, "binding", owner, whys[name], domain[0],
                     unsaid=domain[0])
            for name, domain in self.domains.items()
        ]  # fmt: skip

    def all(self) -> Iterator[dict[str, Value]]:
        """Every way to cut, by the names of decisions; of tiles a few."""
        if self.overlaps is not None:
            yield from self.overlaps.all()
            return
        names = [self.name(name) for name in self.domains]
        for values in product(*self.domains.values()):
            cut = dict(zip(names, values, strict=True))
            if _is_one(self.ways(cut)) and _is_whole(self.choices, self.ways(cut)):
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
            ordered=bool(values.get(self.name(ORDERED), False)),
            shared=bool(values.get(self.name(SHARED), False)),
            private=bool(values.get(self.name(PRIVATE), False)),
            overlap=self.overlaps.overlap(values) if self.overlaps else None,
        )

    def constraints(self, room: Callable[[int], int]) -> list[Constraint]:
        found = []
        if PIECES in self.domains:
            found.append(self._bounded(room))
        if ATOMIC in self.domains and OWNERS in self.domains:
            found.append(self._no_owners())
        if SHARED in self.domains and self.choices.owners:
            found.append(self._at_once())
        if PRIVATE in self.domains:
            first = {ATOMIC: False, SHARED: False, OWNERS: 1}
            needs = "what workers combine by themselves is not shared out or combined at once"
            found.append(self._nothing_else(PRIVATE, first, needs))
        if ORDERED in self.domains:
            first = {ATOMIC: False, SHARED: False, PRIVATE: False, OWNERS: 1, PIECES: 1}
            needs = "what is put in order is not shared out, cut or combined at once"
            found.append(self._nothing_else(ORDERED, first, needs))
            if self.room_ordered > self.most:
                found.append(self._too_much())
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

    @cached_property
    def room_ordered(self) -> int:
        """Bytes that putting in order takes."""
        return room_of(self.program, plain_kernels(self.program, Ways(ordered=True)))

    def _too_much(self) -> Constraint:
        name, room = self.name(ORDERED), self.room_ordered

        def explain(values: Mapping[str, Value]) -> str:
            return f"the order takes {room:,} bytes, {self.most:,} at most"

        needs = "what is put in order has room"
        return Constraint(
            f"{name}.room", needs, lambda columns: columns.is_(name, False), explain, reads=(name,)
        )

    def _at_once(self) -> Constraint:
        shared, atomic = self.name(SHARED), self.name(ATOMIC)

        def check(columns: Columns) -> Any:
            return columns.is_(shared, False) | columns.is_(atomic, True)

        def explain(values: Mapping[str, Value]) -> str:
            return f"{shared}={values[shared]} with {atomic}={values[atomic]}"

        needs = "what blocks combine by themselves is combined in any order"
        return Constraint(shared, needs, check, explain, reads=(shared, atomic))

    def _nothing_else(self, way: str, first: Mapping[str, Value], needs: str) -> Constraint:
        """Of ways that do not go together with one, none is taken."""
        name = self.name(way)
        others = {self.name(n): value for n, value in first.items() if n in self.domains}

        def check(columns: Columns) -> Any:
            found = columns.is_(name, False)
            alone = np.ones(columns.rows, dtype=bool)
            for other, value in others.items():
                alone = alone & columns.is_(other, value)
            return found | alone

        def explain(values: Mapping[str, Value]) -> str:
            said = ", ".join(f"{other}={values[other]}" for other in others)
            return f"{name}={values[name]} with {said}"

        return Constraint(name, needs, check, explain, reads=(name, *others))


def _is_one(ways: Ways) -> bool:
    """Whether ways to cut go together."""
    if ways.ordered:
        return ways == Ways(ordered=True)
    if ways.private:
        return ways == Ways(pieces=ways.pieces, private=True)
    return not (ways.atomic and ways.owners > 1)


def _is_whole(choices: Choices, ways: Ways) -> bool:
    """Whether a group that combines does so in any order."""
    return ways.atomic or not (ways.shared and choices.owners)


def room_of(program: Program, kernels: Iterable[PlainKernel]) -> int:
    """Bytes of the tensors between kernels."""
    return sum(map(spec_bytes, parts_in(program, kernels)))


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor."""
    return prod(spec.shape) * dtype_of(spec.dtype).bytes
