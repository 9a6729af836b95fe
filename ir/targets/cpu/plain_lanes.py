"""Iterations of a plain kernel that do not meet, as lanes of vectors.

What is the same for all lanes is computed as a scalar, what runs along neighbours is read and
written a vector at a time. `fits` tells whether that is all that there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ir.dtypes import compute_dtype, dtype_of
from ir.plain.code import (
    Array,
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
from ir.plain.strides import Walk
from ir.targets.cpu.evaluate import cast, scalar_of
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.nest import Index, Type, Value

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering

_STORED = ("f32", "i32", "f16", "bf16")
_COMPUTED = ("f32", "i32", "bool")
_FUNCTIONS = frozenset(
    ("add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "exp", "log", "tanh",
     "sigmoid", "rsqrt", "lt", "le", "eq", "where", "and", "or", "not")
)  # fmt: skip


class Lanes:
    """The iterations of one `Spread` along one variable, `lanes` at a time."""

    def __init__(
        self, lowering: PlainLowering, spread: Spread, variables: Mapping[str, Index], lanes: int
    ) -> None:
        self.lowering, self.b, self.lanes = lowering, lowering.b, lanes
        self.body = spread.body
        ((self.variable, self.extent),) = spread.variables
        self.variables = dict(variables)
        lets = {s.name.name: s.value for s in spread.body if isinstance(s, Let)}
        self.walk = Walk(self.variable.name, lets)
        self.vectors: dict[str, Value] = {}

    # --- what fits --------------------------------------------------------------------------------

    def fits(self) -> bool:
        return self.extent >= self.lanes and all(map(self._statement_fits, self.body))

    def _statement_fits(self, s: Statement) -> bool:
        if isinstance(s, Let):
            return self._fits(s.value) or self._is_place(s.value)
        if not isinstance(s, Write) or self.walk.stride(s.index) != 1:
            return False
        return self._array(s.array).dtype in _STORED and self._fits(s.value)

    def _is_place(self, scalar: Scalar) -> bool:
        """An index, which is a scalar of which the first lane's is computed."""
        return scalar.dtype == "i64" and self.walk.stride(scalar) in (0, 1)

    def _fits(self, scalar: Scalar) -> bool:
        if scalar.dtype not in _COMPUTED:
            return False
        if self._is_alike(scalar):
            return scalar.dtype != "bool"
        match scalar:
            case Element():
                stored = self._array(scalar.array).dtype in _STORED
                return stored and self.walk.stride(scalar.index) == 1
            case Convert():
                return scalar.to in _STORED and self._fits(scalar.arg)
            case Call():
                known = scalar.function in _FUNCTIONS and scalar.like is None
                return known and all(map(self._fits, scalar.args))
        return isinstance(scalar, Name)

    def _is_alike(self, scalar: Scalar) -> bool:
        """Whether all lanes have the same."""
        return self.walk.stride(scalar) == 0

    def _array(self, name: str) -> Array:
        return self.lowering.arrays[name]

    # --- vectors ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Emit whole vectors; where what is left begins."""
        whole = self.extent // self.lanes * self.lanes
        with self.b.loop(self.variable.name, 0, whole, self.lanes) as loop:
            self.variables[self.variable.name] = loop.variable
            for s in self.body:
                self._emit(s)
        return whole

    def _emit(self, s: Statement) -> None:
        if isinstance(s, Let):
            if self._is_alike(s.value) or s.value.dtype == "i64":
                self.variables[s.name.name] = self.lowering.scalar(s.value, self.variables)
            else:
                self.vectors[s.name.name] = self._value(s.value)
            return
        assert isinstance(s, Write)
        array = self._array(s.array)
        value = cast(self.b, self._value(s.value), array.dtype, False)
        value = self.b.convert(value, scalar_of(array.dtype))
        self.b.store(value, self.lowering.address(array, s.index, self.variables))

    def _value(self, scalar: Scalar) -> Value:
        """A vector of what each lane has."""
        if isinstance(scalar, Number):
            return self.b.constant(scalar.value, Type(scalar_of(scalar.dtype), self.lanes))
        if self._is_alike(scalar):
            return self.b.splat(self.lowering.value(scalar, self.variables), self.lanes)
        match scalar:
            case Name():
                return self.vectors[scalar.name]
            case Element():
                array = self._array(scalar.array)
                where = self.lowering.address(array, scalar.index, self.variables)
                value = self.b.load(Type(scalar_of(array.dtype), self.lanes), where)
                return self.b.convert(value, scalar_of(compute_dtype(array.dtype)))
            case Convert():
                found = cast(self.b, self._value(scalar.arg), scalar.to, _unsigned(scalar.arg))
                return self.b.convert(found, scalar_of(scalar.dtype))
            case Call():
                args = [self._value(arg) for arg in scalar.args]
                return apply_function(self.lowering.arith, scalar.function, args)


def _unsigned(scalar: Scalar) -> bool:
    return dtype_of(scalar.dtype).kind == "bool"


def in_lanes(
    lowering: PlainLowering, s: Spread, variables: Mapping[str, Index], lanes: int
) -> int | None:
    """Emit a `Spread` in vectors, where it can be; where its other iterations begin."""
    if len(s.variables) != 1:
        return None
    found = Lanes(lowering, s, variables, lanes)
    return found.run() if found.fits() else None
