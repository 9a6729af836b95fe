"""Iterations of a plain kernel as lanes of vectors, with all functions and types that there are.

What `plain_lanes` has vectors for is what most kernels consist of; what is folded may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.plain.code import (
    Accumulate,
    Call,
    Convert,
    Element,
    Let,
    Name,
    Number,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.targets.cpu import integers
from ir.targets.cpu.evaluate import cast, scalar_of
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.plain_lanes import Lanes

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering


class AnyLanes(Lanes):
    """Lanes of whatever is the same for all, lies evenly, or is computed of such."""

    def _is_even(self, scalar: Scalar) -> bool:
        """Whether it is an index that grows evenly."""
        return scalar.dtype == "i64" and self.walk.stride(scalar) is not None

    def _fits(self, scalar: Scalar) -> bool:
        if self._is_alike(scalar) or self._is_even(scalar):
            return True
        match scalar:
            case Element():
                whole = dtype_of(self._array(scalar.array).dtype).per_byte == 1
                return whole and self.walk.stride(scalar.index) is not None
            case Convert():
                return self._fits(scalar.arg)
            case Call():
                return all(map(self._fits, scalar.args))
        return isinstance(scalar, Name)

    def _statement_fits(self, s: Statement) -> bool:
        if not isinstance(s, Write):
            return super()._statement_fits(s)
        whole = dtype_of(self._array(s.array).dtype).per_byte == 1
        return whole and self.walk.stride(s.index) not in (0, None) and self._fits(s.value)

    def _define(self, s: Let) -> None:
        if self._is_alike(s.value) or self._is_even(s.value):
            self.variables[s.name.name] = self.lowering.scalar(s.value, self.variables)
        else:
            self.vectors[s.name.name] = self._value(s.value)

    def _value(self, scalar: Scalar) -> Value:
        if self._is_even(scalar) and not isinstance(scalar, Number):
            return self._counted(scalar)
        if self._is_alike(scalar) and not isinstance(scalar, Number):
            return self.b.splat(self.lowering.value(scalar, self.variables), self.lanes)
        if not isinstance(scalar, Call | Convert):
            return super()._value(scalar)
        if isinstance(scalar, Convert):
            found = cast(self.b, self._value(scalar.arg), scalar.to, _unsigned(scalar.arg.dtype))
            return self.b.convert(found, scalar_of(scalar.dtype), _unsigned(scalar.to))
        args = [self._value(arg) for arg in scalar.args]
        if scalar.like is not None:
            return self.lowering.special(scalar, scalar.like, args[0])
        if scalar.function in ("shl", "shr"):
            return integers.shifted(self.b, scalar.function, args[0], args[1], False)
        return apply_function(self.lowering.arith, scalar.function, args)

    def _element(self, element: Element) -> Value:
        array, stride = self._array(element.array), self.walk.stride(element.index)
        if array.dtype != "bool":
            return super()._element(element)
        where, type = self._address(element.array, element.index), Type("i8", self.lanes)
        value = self.b.load(type, where) if stride == 1 else self.b.gather(type, where, stride or 0)
        return self.b.test("ne", value, self.b.constant(0, value.type))

    def _emit(self, s: Statement) -> None:
        if not isinstance(s, Write):
            super()._emit(s)
            return
        array, stride = self._array(s.array), self.walk.stride(s.index) or 0
        value = self.lowering.rounded(array, self._value(s.value), s.value.dtype)
        where = self._address(s.array, s.index)
        if stride == 1:
            self.b.store(value, where)
        else:
            self.b.scatter(value, where, stride * dtype_of(array.dtype).bytes)

    def _address(self, array: str, index: Scalar) -> Value:
        return self.lowering.address(self._array(array), index, self.variables)


class Stretch(AnyLanes):
    """Statements at neighbours along a fold's axis, where `states` differ from the beginning."""

    def __init__(
        self,
        lowering: PlainLowering,
        s: Accumulate,
        body: Sequence[Statement],
        variables: Mapping[str, Index],
        lanes: int,
        states: Iterable[str] = (),
    ) -> None:
        self.known: dict[int, Value] | None = None
        spread = Spread(((s.variable, s.extent),), tuple(body))
        super().__init__(lowering, spread, variables, lanes)
        self.walk = type(self.walk)(
            self.walk.variable, self.walk.defined, self.walk.changing | frozenset(states)
        )

    def _bound(self, condition: Scalar) -> tuple[bool, Scalar, int] | None:
        """Where conditions hold has to be known beforehand."""
        return None

    @property
    def everywhere(self) -> bool:
        """Whether all conditions hold along the whole axis."""
        return self.first == 0 and self.end == self.extent

    def values_fit(self, scalars: Iterable[Scalar]) -> bool:
        return all(map(self._fits, scalars))

    def at(self, place: Index, vectors: Mapping[str, Value]) -> None:
        """Emit the statements for the vector that begins at a coordinate."""
        self.variables[self.variable.name] = place
        self.vectors = dict(vectors)
        self._block(self.body)

    def vector(self, scalar: Scalar) -> Value:
        return self._value(scalar)

    def together(self, scalars: Iterable[Scalar], vectors: Mapping[str, Value]) -> list[Value]:
        """Vectors of scalars of what variables hold; each object in them is made once."""
        self.vectors, self.known = dict(vectors), dict[int, Value]()
        found = [self._value(scalar) for scalar in scalars]
        self.known = None
        return found

    def _value(self, scalar: Scalar) -> Value:
        if self.known is None:
            return super()._value(scalar)
        if id(scalar) not in self.known:
            self.known[id(scalar)] = super()._value(scalar)
        return self.known[id(scalar)]


def lanes_of(
    lowering: PlainLowering, s: Spread, variables: Mapping[str, Index], lanes: int
) -> Lanes | None:
    """A `Spread` in vectors along its last variable, where that can be."""
    if not s.variables:
        return None
    for kind in (Lanes, AnyLanes) if lowering.folds else (Lanes,):
        found = kind(lowering, s, variables, lanes)
        if found.fits():
            return found
    return None


def _unsigned(dtype: str) -> bool:
    return dtype_of(dtype).kind in ("bool", "uint")
