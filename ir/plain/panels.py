"""Points of a cooperative kernel beside each other: a group has neighbours along one axis, a panel.

Points do not meet, so that a group may have several: what a loop that threads share does for one
point it does for each of them, arrays of the group hold an element of each, side by side, and
what is the same for all of them (a matrix that columns are solved by, the keys of a state's
columns) is read once for the panel. `panel_axis` tells along which axis that is so. Points whose
elements lie `apart` in memory (sequences of a batch, which one matrix multiplies at every step) are
a panel where that makes products of matrices; arrays then have a row for each. Knows no target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ir.plain.accesses import every, nested, scalars_of
from ir.plain.code import (
    GROUP,
    TENSOR,
    Accumulate,
    Array,
    Assign,
    Between,
    Call,
    Claim,
    Combine,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.products import narrowed, products_of
from ir.plain.scalars import rebuilt
from ir.plain.strides import Walk, elements

_Change = Callable[[Sequence[Statement]], tuple[Statement, ...]]
_FEW = 8  # points of a panel that shows whether there are products
LANE = "lane"  # the variable of a point in its panel


@dataclass(frozen=True, slots=True)
class PanelAxis:
    """An axis of points, the names and arrays that hold what differs along it, and whether
    neighbours' elements of tensors lie apart."""

    name: str
    extent: int
    differing: frozenset[str]
    apart: bool = False

    def differs(self, scalar: Scalar) -> bool:
        """Whether points beside each other may have different values."""
        match scalar:
            case Name():
                return scalar.name == self.name or scalar.name in self.differing
            case Element():
                return scalar.array in self.differing or self.differs(scalar.index)
            case Call():
                return any(map(self.differs, scalar.args))
            case Convert():
                return self.differs(scalar.arg)
        return False


def panel_axis(kernel: PlainKernel) -> PanelAxis | None:
    """The axis along which points can be panels: what goes on outside shared loops is the same for
    all of them, neighbours read and write neighbours, and something is read by all alike. Of
    several that along which most is; where neighbours lie apart along all of them, one that makes
    products of matrices. None if there is none."""
    if not kernel.cooperative or any(isinstance(s, Claim) for s in every(kernel.body)):
        return None
    found = []
    for place, (name, extent) in enumerate(kernel.points):
        own = PanelAxis(name.name, extent, _differing(kernel, name.name))
        if extent == 1 or not _is_same_outside(kernel, own):
            continue
        for axis in (own, replace(own, apart=True)):
            alike = _read_alike(kernel, axis)
            if alike and (not axis.apart or _multiplies(kernel, axis)):
                found.append((not axis.apart, alike, place, axis))
            if alike:
                break
    return max(found, key=lambda entry: entry[:3])[3] if found else None


def _multiplies(kernel: PlainKernel, axis: PanelAxis) -> bool:
    """Whether shared loops have products of matrices where points are panels."""
    count = min(axis.extent, _FEW)
    if axis.extent % count:
        return False
    wide = panelled(narrowed(kernel), axis, count)
    loops = (s for s in every(wide.body) if isinstance(s, Spread))
    return any(products_of(wide, loop) is not None for loop in loops)


def panelled(kernel: PlainKernel, axis: PanelAxis, count: int, pitch: int = 0) -> PlainKernel:
    """The kernel with `count` neighbours along the axis, which divides that, in every group.

    Elements of an array for all of them are `pitch` places apart from the next ones, if that is
    given, else side by side; where neighbours lie apart, rows are as much longer than they are."""
    pitch = pitch or count
    lane = Name(_fresh(kernel))
    here = _add(_times(Name(axis.name), count), lane)
    panel = _Panel(axis, count, pitch, lane, {Name(axis.name): here})
    points = tuple(
        (name, extent // count if name.name == axis.name else extent)
        for name, extent in kernel.points
    )
    panel.rows = {
        array.name: array.size + pitch - count
        for array in kernel.arrays
        if panel.widens(array.name, array.place)
    }
    arrays = tuple(
        replace(array, size=panel.size_of(array)) if array.name in panel.rows else array
        for array in kernel.arrays
    )
    return replace(kernel, arrays=arrays, points=points, body=panel.outside(kernel.body))


def _differing(kernel: PlainKernel, name: str) -> frozenset[str]:
    """Names and arrays, none of them tensors, that hold what differs along an axis of points."""
    tensors = {array.name for array in kernel.arrays if array.place == TENSOR}
    found: frozenset[str] = frozenset()
    while True:
        axis = PanelAxis(name, 0, found)
        more = found | (set(_given(kernel.body, axis, False)) - tensors)
        if more == found:
            return found
        found = frozenset(more)


def _given(statements: Iterable[Statement], axis: PanelAxis, apart: bool) -> Iterable[str]:
    """Names and arrays to which statements give what differs; all, where they run `apart`: behind
    a condition that differs."""
    for s in statements:
        if isinstance(s, Let | Assign) and (apart or axis.differs(s.value)):
            yield s.name.name
        elif isinstance(s, Write | Combine) and (
            apart or axis.differs(s.value) or axis.differs(s.index)
        ):
            yield s.array
        elif isinstance(s, Accumulate):
            inner = (*s.values, *(v for t in every((*s.body, *s.keep)) for v in scalars_of(t)))
            if apart or any(map(axis.differs, inner)):
                yield from (state.name for state in s.states)
        within = apart or (isinstance(s, If | Between) and any(map(axis.differs, scalars_of(s))))
        for block in nested(s):
            yield from _given(block, axis, within)


def _is_same_outside(kernel: PlainKernel, axis: PanelAxis) -> bool:
    """Whether nothing differs but inside of shared loops, whose arrays are the group's."""
    places = {array.name: array.place for array in kernel.arrays}

    def same(s: Statement) -> bool:
        if isinstance(s, Spread):
            return True
        written = isinstance(s, Write | Combine) and s.array in axis.differing
        if written or any(map(axis.differs, scalars_of(s))):
            return False
        return all(same(inner) for block in nested(s) for inner in block)

    own = {name for name, place in places.items() if place not in (GROUP, TENSOR)}
    return not own & axis.differing and all(map(same, kernel.body))


def _read_alike(kernel: PlainKernel, axis: PanelAxis) -> int:
    """How many reads in shared loops are the same for a panel; 0 where others are not of
    neighbours, unless these lie apart."""
    tensors = {array.name for array in kernel.arrays if array.place == TENSOR}
    lets = {s.name.name: s.value for s in every(kernel.body) if isinstance(s, Let)}
    walk = Walk(axis.name, lets, axis.differing - set(lets))
    alike = 0
    for spread in (s for s in every(kernel.body) if isinstance(s, Spread)):
        if not any(axis.differs(v) for s in every(spread.body) for v in scalars_of(s)):
            continue
        for s in every(spread.body):
            places = [e.index for e in elements(scalars_of(s)) if e.array in tensors]
            if isinstance(s, Write) and s.array in tensors:
                places.append(s.index)
            strides = [walk.stride(place) for place in places]
            if not axis.apart and any(stride not in (0, 1) for stride in strides):
                return 0
            alike += sum(stride == 0 for stride in strides)
    return alike


class _Panel:
    """Rewrites statements for a panel of points."""

    rows: Mapping[str, int] = {}  # arrays that have an element for each point: from row to row

    def __init__(
        self, axis: PanelAxis, count: int, pitch: int, lane: Name, by: dict[Scalar, Scalar]
    ) -> None:
        self.axis, self.count, self.pitch, self.lane, self.by = axis, count, pitch, lane, by

    def widens(self, name: str, place: str) -> bool:
        return place == GROUP and name in self.axis.differing

    def size_of(self, array: Array) -> int:
        return self.rows[array.name] * self.count if self.axis.apart else array.size * self.pitch

    def outside(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """What all threads of the group do alike."""
        return tuple(
            self._shared(s) if isinstance(s, Spread) else with_blocks(s, self.outside)
            for s in statements
        )

    def _shared(self, spread: Spread) -> Spread:
        touched = {name for s in every(spread.body) for name in _arrays_of(s)}
        same = not any(self.axis.differs(v) for s in every(spread.body) for v in scalars_of(s))
        if same and not touched & {*self.rows}:
            return spread
        lane = ((self.lane, self.count),)
        variables = (*lane, *spread.variables) if self.axis.apart else (*spread.variables, *lane)
        return Spread(variables, self._inside(spread.body))

    def _inside(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(self._one(s) for s in statements)

    def _one(self, s: Statement) -> Statement:
        of = self._scalar
        if isinstance(s, Let | Assign):
            return replace(s, value=of(s.value))
        if isinstance(s, Write | Combine):
            return replace(s, index=self._place(s.array, of(s.index)), value=of(s.value))
        if isinstance(s, If):
            s = replace(s, condition=of(s.condition))
        elif isinstance(s, Between):
            s = replace(s, first=of(s.first), end=of(s.end))
        elif isinstance(s, Accumulate):
            s = replace(s, values=tuple(map(of, s.values)))
        return with_blocks(s, self._inside)

    def _place(self, array: str, index: Scalar) -> Scalar:
        if array not in self.rows:
            return index
        if self.axis.apart:
            return _add(_times(self.lane, self.rows[array]), index)
        return _add(_times(index, self.pitch), self.lane)

    def _scalar(self, scalar: Scalar) -> Scalar:
        return rebuilt(scalar, self._changed)

    def _changed(self, scalar: Scalar) -> Scalar | None:
        if isinstance(scalar, Element):
            return replace(scalar, index=self._place(scalar.array, self._scalar(scalar.index)))
        return self.by.get(scalar)


def with_blocks(s: Statement, change: _Change) -> Statement:
    """The statement with other blocks inside."""
    if isinstance(s, If):
        return replace(s, body=change(s.body), other=change(s.other))
    if isinstance(s, Loop | Between):
        return replace(s, body=change(s.body))
    if isinstance(s, Accumulate):
        return replace(s, body=change(s.body), keep=change(s.keep))
    return s


def _arrays_of(s: Statement) -> Iterable[str]:
    if isinstance(s, Write | Combine):
        yield s.array
    yield from (element.array for element in elements(scalars_of(s)))


def _fresh(kernel: PlainKernel) -> str:
    taken = {name.name for name, _ in kernel.points}
    for s in every(kernel.body):
        if isinstance(s, Spread):
            taken |= {name.name for name, _ in s.variables}
        elif isinstance(s, Let | Claim):
            taken.add(s.name.name)
        elif isinstance(s, Loop | Between | Accumulate):
            taken.add(s.variable.name)
    names = (f"{LANE}_{number}" for number in range(1, len(taken) + 2))
    return next(name for name in (LANE, *names) if name not in taken)


def _add(left: Scalar, right: Scalar) -> Scalar:
    return Call("add", (left, right), "i64")


def _times(scalar: Scalar, factor: int) -> Scalar:
    return Call("mul", (scalar, Number(factor, "i64")), "i64")
