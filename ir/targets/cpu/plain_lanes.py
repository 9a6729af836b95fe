"""Iterations of a plain kernel that do not meet, as lanes of vectors.

What is the same for all lanes is computed as a scalar, what runs along neighbours is read and
written a vector at a time. `fits` tells whether that is all that there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import compute_dtype, dtype_of
from ir.plain.code import (
    Array,
    Assign,
    Call,
    Convert,
    Element,
    Let,
    Loop,
    Name,
    Number,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.strides import Walk
from ir.plain.sums import is_sum
from ir.targets.cpu.evaluate import cast, scalar_of
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.nest import Index, Type, Value

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering

_TURNS = 4  # vectors of a sum that are added up beside each other
_STORED = ("f32", "i32", "f16", "bf16")
_COMPUTED = ("f32", "i32", "bool")
_FUNCTIONS = frozenset(
    ("add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "exp", "log", "tanh",
     "sigmoid", "rsqrt", "lt", "le", "eq", "where", "and", "or", "not")
)  # fmt: skip


class _Vectors:
    """Statements of a loop along one variable, `lanes` iterations of it at a time."""

    def __init__(
        self,
        lowering: PlainLowering,
        body: Sequence[Statement],
        along: tuple[Name, int],
        variables: Mapping[str, Index],
        lanes: int,
    ) -> None:
        self.lowering, self.b, self.lanes = lowering, lowering.b, lanes
        self.body, (self.variable, self.extent) = body, along
        self.variables = dict(variables)
        lets = {s.name.name: s.value for s in body if isinstance(s, Let)}
        self.walk = Walk(self.variable.name, lets)
        self.vectors: dict[str, Value] = {}

    def _let_fits(self, s: Let) -> bool:
        return self._fits(s.value) or self._is_place(s.value)

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

    def _define(self, s: Let) -> None:
        if self._is_alike(s.value) or s.value.dtype == "i64":
            self.variables[s.name.name] = self.lowering.scalar(s.value, self.variables)
        else:
            self.vectors[s.name.name] = self._value(s.value)

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


class Lanes(_Vectors):
    """The iterations of one `Spread` along one variable, `lanes` at a time."""

    def __init__(
        self, lowering: PlainLowering, spread: Spread, variables: Mapping[str, Index], lanes: int
    ) -> None:
        ((variable, extent),) = spread.variables
        super().__init__(lowering, spread.body, (variable, extent), variables, lanes)

    # --- what fits --------------------------------------------------------------------------------

    def fits(self) -> bool:
        return self.extent >= self.lanes and all(map(self._statement_fits, self.body))

    def _statement_fits(self, s: Statement) -> bool:
        if isinstance(s, Let):
            return self._let_fits(s)
        if not isinstance(s, Write) or self.walk.stride(s.index) != 1:
            return False
        return self._array(s.array).dtype in _STORED and self._fits(s.value)

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
            self._define(s)
            return
        assert isinstance(s, Write)
        array = self._array(s.array)
        value = cast(self.b, self._value(s.value), array.dtype, False)
        value = self.b.convert(value, scalar_of(array.dtype))
        self.b.store(value, self.lowering.address(array, s.index, self.variables))


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


class Sums(_Vectors):
    """A loop that only adds up, by vectors: `_TURNS` of them go on beside each other, so that none
    waits for the one before."""

    def fits(self) -> bool:
        return self.extent >= self.lanes * _TURNS and all(map(self._statement_fits, self.body))

    def _statement_fits(self, s: Statement) -> bool:
        if isinstance(s, Let):
            return self._let_fits(s)
        here = isinstance(s, Assign) and self.variables.get(s.name.name)
        alone = isinstance(here, Value) and not here.type.lanes
        return alone and isinstance(s, Assign) and s.name.dtype == "f32" and self._fits(_added(s))

    def run(self) -> tuple[dict[str, Value], int]:
        """Emit whole vectors; the sums behind them, and where what is left begins."""
        step = self.lanes * _TURNS
        whole = self.extent // step * step
        names = [s.name.name for s in self.body if isinstance(s, Assign)]
        zero = self.b.constant(0, Type("f32", self.lanes))
        initial = [zero] * len(names) * _TURNS
        with self.b.loop(self.variable.name, 0, whole, step, initial) as loop:
            left: list[Value] = []
            for turn in range(_TURNS):
                self.vectors = {}
                self.variables[self.variable.name] = self.b.add(loop.variable, turn * self.lanes)
                held = loop.carried[turn * len(names) : (turn + 1) * len(names)]
                left += self._turn(dict(zip(names, held, strict=True)))
            loop.block.yields = tuple(left)
        found = {}
        for number, name in enumerate(names):
            parts = [loop.results[turn * len(names) + number] for turn in range(_TURNS)]
            while len(parts) > 1:
                parts = [
                    apply_function(self.lowering.arith, "add", [first, second])
                    for first, second in zip(parts[::2], parts[1::2], strict=True)
                ]
            before = self.lowering.value(Name(name, "f32"), self.variables)
            whole_sum = self.b.fold("sum", parts[0])
            found[name] = apply_function(self.lowering.arith, "add", [before, whole_sum])
        return found, whole

    def _turn(self, sums: dict[str, Value]) -> list[Value]:
        for s in self.body:
            if isinstance(s, Let):
                self._define(s)
            elif isinstance(s, Assign):
                added = self._value(_added(s))
                held = [sums[s.name.name], added]
                sums[s.name.name] = apply_function(self.lowering.arith, "add", held)
        return list(sums.values())


def _added(s: Assign) -> Scalar:
    assert isinstance(s.value, Call)
    return s.value.args[1]


def summed(
    lowering: PlainLowering, s: Loop, variables: Mapping[str, Index], lanes: int
) -> tuple[dict[str, Value], int] | None:
    """Emit a loop that adds up in vectors, where it can be; the sums, and where what is left
    begins."""
    if s.backward or not is_sum(s):
        return None
    found = Sums(lowering, s.body, (s.variable, s.extent), variables, lanes)
    return found.run() if found.fits() else None
