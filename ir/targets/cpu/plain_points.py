"""Points of a plain kernel beside each other, as lanes of vectors.

Points do not meet, so that neighbours along one axis of them can do every statement together: what
differs from point to point is a vector, what does not is computed once, and arrays of a thread have
an element for each lane. `lane_axis` tells along which axis that is possible: where no branch and
no place in memory depends on what a point has found. The last vector of an axis ends where the axis
does, so that some of its points are run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ir.dtypes import dtype_of
from ir.plain.accesses import every, nested, scalars_of
from ir.plain.code import (
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
    Name,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.strides import Walk, elements
from ir.targets.cpu import integers
from ir.targets.cpu.frame import Frame
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.instructions import VectorRow
from ir.targets.cpu.nest import I64, Index, Type, Value
from ir.targets.cpu.plain import PlainLowering
from ir.targets.cpu.plain_folds import Variables, given_state

_COMPUTED = ("f64", "f32", "i32", "bool")


@dataclass(frozen=True, slots=True)
class LaneAxis:
    """Points along `name` that run `lanes` at a time; what differs among them."""

    name: str
    lanes: int
    walk: LaneWalk

    def differs(self, scalar: Scalar) -> bool:
        """Whether points beside each other may have different values."""
        return self.walk.stride(scalar) != 0


@dataclass(frozen=True, slots=True)
class LaneWalk(Walk):
    """From point to point along an axis, where arrays that are `own` hold anything."""

    own: frozenset[str] = frozenset()

    def stride(self, scalar: Scalar) -> int | None:
        if isinstance(scalar, Element) and scalar.array in self.own:
            return None
        return Walk.stride(self, scalar)


def lane_axis(kernel: PlainKernel, lanes: int) -> LaneAxis | None:
    """The axis of points of which `lanes` can run beside each other: of several, that along which
    most of what is read and written are neighbours, the innermost of equals."""
    found = []
    for place, (name, extent) in enumerate(kernel.points):
        if extent < lanes or (extent % lanes and _is_read_back(kernel)):
            continue
        axis = LaneAxis(name.name, lanes, _walk_of(kernel, name.name))
        if all(map(_Fitting(kernel, axis.walk).fits, kernel.body)):
            found.append((-_apart(kernel, axis.walk), place, axis))
    return max(found, key=lambda entry: entry[:2])[2] if found else None


def _walk_of(kernel: PlainKernel, name: str) -> LaneWalk:
    """What differs along an axis: of the variables those that something differing is put into."""
    own = frozenset(array.name for array in kernel.arrays if array.place != TENSOR)
    statements = list(every(kernel.body))
    defined = {s.name.name: s.value for s in statements if isinstance(s, Let)}
    again = {s.name.name for s in statements if isinstance(s, Assign)}
    indices = {n: v for n, v in defined.items() if v.dtype == "i64" and n not in again}
    changing: frozenset[str] = frozenset()
    while True:
        walk = LaneWalk(name, indices, changing, own)
        more = {n for s in statements for n in _differing(s, walk) if n not in indices}
        if more <= changing:
            return walk
        changing |= more


def _differing(s: Statement, walk: LaneWalk) -> Iterator[str]:
    """The variables to which a statement gives what differs."""
    if isinstance(s, Let | Assign) and walk.stride(s.value) != 0:
        yield s.name.name
    if isinstance(s, Accumulate) and any(walk.stride(x) != 0 for x in (*s.values, *s.states)):
        for state in s.states:
            yield state.name
            yield given_state(state).name


def _is_read_back(kernel: PlainKernel) -> bool:
    """Whether a point reads what it, or another, wrote to a tensor."""
    tensors = {array.name for array in kernel.arrays if array.place == TENSOR}
    written, read = set[str](), set[str]()
    for s in every(kernel.body):
        written |= {s.array} if isinstance(s, Write) else set()
        read |= {element.array for element in elements(scalars_of(s))}
    return bool(tensors & written & read)


def _apart(kernel: PlainKernel, walk: LaneWalk) -> int:
    """How many reads and writes of tensors are not of one place or of neighbours."""
    found = 0
    for s in every(kernel.body):
        places = [e.index for e in elements(scalars_of(s)) if e.array not in walk.own]
        places += [s.index] if isinstance(s, Write) and s.array not in walk.own else []
        found += sum(walk.stride(place) not in (0, 1) for place in places)
    return found


class _Fitting:
    """Whether points can do a statement together."""

    def __init__(self, kernel: PlainKernel, walk: LaneWalk) -> None:
        self.walk = walk
        self.arrays = {array.name: array for array in kernel.arrays}

    def fits(self, s: Statement) -> bool:
        if isinstance(s, Claim | Combine):
            return False
        if isinstance(s, Write):
            own = s.array in self.walk.own
            stride = self.walk.stride(s.index)
            return (stride == 0 if own else stride not in (0, None)) and self._is_computed(s.value)
        if isinstance(s, Let | Assign):
            if s.name.dtype == "i64":
                stride = self.walk.stride(s.value)
                return stride is not None if isinstance(s, Let) else stride == 0
            return self._is_computed(s.value)
        if isinstance(s, If) and self.walk.stride(s.condition) != 0:
            return False
        if isinstance(s, Between) and any(self.walk.stride(end) != 0 for end in (s.first, s.end)):
            return False
        if isinstance(s, Accumulate) and not all(map(self._is_state, s.values)):
            return False
        return all(self.fits(inner) for block in nested(s) for inner in block)

    def _is_state(self, scalar: Scalar) -> bool:
        indexes = scalar.dtype == "i64"
        return self.walk.stride(scalar) == 0 if indexes else self._is_computed(scalar)

    def _is_computed(self, scalar: Scalar) -> bool:
        """Whether lanes have it: it is the same for all, or a vector can be made of it."""
        stride = self.walk.stride(scalar)
        if stride == 0 or (scalar.dtype == "i64" and stride is not None):
            return True
        if scalar.dtype not in _COMPUTED:
            return False
        match scalar:
            case Name():
                return True
            case Element():
                where = self.walk.stride(scalar.index)
                return where == 0 or (where is not None and scalar.array not in self.walk.own)
            case Convert():
                return self._is_computed(scalar.arg)
            case Call():
                return all(map(self._is_computed, scalar.args))
        return False


class PointLanes(PlainLowering):
    """Lowers a kernel with the points of a `LaneAxis` beside each other."""

    def __init__(
        self,
        kernel: PlainKernel,
        frame: Frame,
        vector: VectorRow,
        axis: LaneAxis,
        parts: Mapping[str, int] | None = None,
    ) -> None:
        self.axis, self.beside = axis, axis.lanes
        super().__init__(kernel, frame, vector, parts)

    def steps(self, name: Name, extent: int) -> int:
        return -(-extent // self.beside) if name.name == self.axis.name else extent

    def first(self, name: Name, extent: int, step: Index) -> Index:
        if name.name != self.axis.name:
            return step
        start = self.b.mul(step, self.beside)
        return self.b.minimum(start, extent - self.beside) if extent % self.beside else start

    def held(self, name: Name, value: Index) -> Index:
        differs = name.dtype != "i64" and name.name in self.axis.walk.changing
        return self._wide(value) if differs and isinstance(value, Value) else value

    def _wide(self, value: Value) -> Value:
        return value if value.type.lanes else self.b.splat(value, self.beside)

    def _spread(self, s: Spread, variables: Variables) -> None:
        self._looped(s, variables)

    # --- scalars ------------------------------------------------------------------------------

    def _scalar(self, s: Scalar, variables: Mapping[str, Index], known: dict[int, Index]) -> Index:
        """Of indices, and of what is the same for all, that of the first point."""
        if s.dtype == "i64" or not self.axis.differs(s):
            return super()._scalar(s, variables, known)
        if isinstance(s, Convert):
            return self._converted(s, self._lanes_of(s.arg, variables, known))
        if not isinstance(s, Call):
            return super()._scalar(s, variables, known)
        args = [self._lanes_of(arg, variables, known) for arg in s.args]
        if s.like is not None:
            return self.special(s, s.like, args[0])
        if s.function in ("shl", "shr"):
            return integers.shifted(self.b, s.function, args[0], args[1], False)
        return apply_function(self.arith, s.function, args)

    def _lanes_of(
        self, s: Scalar, variables: Mapping[str, Index], known: dict[int, Index]
    ) -> Value:
        """A vector of what each point has."""
        value = self.value(s, variables, known)
        if value.type.lanes:
            return value
        wide = self._wide(value)
        stride = self.axis.walk.stride(s)
        if s.dtype != "i64" or not stride:
            return wide
        steps = self.b.lanes(Type(I64.scalar, self.beside))
        if stride != 1:
            steps = self.b.op("imul", steps, self.b.constant(stride, steps.type))
        return self.b.op("iadd", wide, steps)

    # --- memory -------------------------------------------------------------------------------

    def address(self, array: Array, index: Scalar, variables: Mapping[str, Index]) -> Value:
        size = dtype_of(array.dtype).bytes * (1 if array.place == TENSOR else self.beside)
        place = self.b.mul(self.scalar(index, variables), size)
        return self.b.offset(self.bases[array.name], place)

    def _load(
        self, array: Array, index: Scalar, scalar: str, variables: Mapping[str, Index]
    ) -> Value:
        where, type = self.address(array, index, variables), Type(scalar, self.beside)
        stride = 1 if array.place != TENSOR else self.axis.walk.stride(index)
        assert stride is not None
        if stride == 0:
            return self.b.load(Type(scalar), where)
        if stride == 1:
            return self.b.load(type, where)
        return self.b.gather(type, where, stride * dtype_of(array.dtype).bytes)

    def _store(self, array: Array, index: Scalar, value: Value, variables: Variables) -> None:
        where, value = self.address(array, index, variables), self._wide(value)
        stride = 1 if array.place != TENSOR else self.axis.walk.stride(index)
        assert stride is not None
        if stride == 1:
            self.b.store(value, where)
        else:
            self.b.scatter(value, where, stride * dtype_of(array.dtype).bytes)
