"""Iterations of a plain kernel that do not meet, as lanes of vectors.

What is the same for all lanes is computed as a scalar, what runs along neighbours is read and
written a vector at a time. `fits` tells whether that is all that there is.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import compute_dtype, dtype_of
from ir.plain.accesses import every
from ir.plain.code import (
    Array,
    Assign,
    Call,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.scalars import convert
from ir.plain.strides import Walk
from ir.plain.sums import is_sum
from ir.targets.cpu.evaluate import cast, scalar_of
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.nest import I64, Index, Type, Value

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering

TURNS = 4  # vectors whose sums go on beside each other
_STORED = ("f64", "f32", "i32", "f16", "bf16", "i8", "u8", "i16", "u16", "bool")
_COMPUTED = ("f64", "f32", "i32", "bool")
_COUNTED = ("f32", "i32")  # what indices may become
_OF_INDICES = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_FUNCTIONS = frozenset(
    ("add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "exp", "log", "tanh",
     "sigmoid", "rsqrt", "lt", "le", "eq", "where", "and", "or", "not")
)  # fmt: skip


class _Vectors:
    """Statements of a loop along one variable, `lanes` iterations of it at a time."""

    gathers = False  # whether elements may be read that lie evenly, but not side by side

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
        inside = list(every(body))
        changing = frozenset(s.name.name for s in inside if isinstance(s, Assign))
        lets = {s.name.name: s.value for s in inside if isinstance(s, Let)}
        lets = {name: value for name, value in lets.items() if name not in changing}
        self.walk = Walk(self.variable.name, lets, changing)
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
            return True
        match scalar:
            case Element():
                stored = self._array(scalar.array).dtype in _STORED
                stride = self.walk.stride(scalar.index)
                return stored and (stride == 1 or (self.gathers and stride is not None))
            case Convert(arg, to):
                if arg.dtype == "i64":
                    return to in _COUNTED and self.walk.stride(arg) is not None
                return to in _STORED and self._fits(arg)
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
            return self._shared(self.lowering.value(scalar, self.variables))
        match scalar:
            case Name():
                return self.vectors[scalar.name]
            case Element():
                return self._element(scalar)
            case Convert():
                counted = scalar.arg.dtype == "i64"
                arg = self._counted(scalar.arg) if counted else self._value(scalar.arg)
                found = cast(self.b, arg, scalar.to, _unsigned(scalar.arg.dtype))
                return self.b.convert(found, scalar_of(scalar.dtype), _unsigned(scalar.to))
            case Call():
                args = [self._value(arg) for arg in scalar.args]
                return apply_function(self.lowering.arith, scalar.function, args)

    def _shared(self, value: Value) -> Value:
        """What all lanes have. Printers have truth values of vectors in their own ways."""
        if value.type.scalar != "i1":
            return self.b.splat(value, self.lanes)
        numbers = (self.b.constant(number, Type("i32")) for number in (1, 0))
        one = self.b.splat(self.b.select(value, *numbers), self.lanes)
        return self.b.test("ne", one, self.b.constant(0, one.type))

    def _element(self, element: Element) -> Value:
        """Neighbours, or elements that lie evenly."""
        array, stride = self._array(element.array), self.walk.stride(element.index)
        is_truth = array.dtype == "bool"
        type = Type("i8" if is_truth else scalar_of(array.dtype), self.lanes)
        where = self.lowering.address(array, element.index, self.variables)
        if stride == 1:
            value = self.b.load(type, where)
        else:
            value = self.b.gather(type, where, (stride or 0) * dtype_of(array.dtype).bytes)
        if is_truth:
            return self.b.test("ne", value, self.b.constant(0, value.type))
        kind = scalar_of(compute_dtype(array.dtype))
        return self.b.convert(value, kind, _unsigned(array.dtype))

    def _counted(self, scalar: Scalar) -> Value:
        """Indices that grow evenly from lane to lane."""
        first = self.b.splat(self.lowering.value(scalar, self.variables), self.lanes)
        stride = self.walk.stride(scalar)
        if not stride:
            return first
        steps = self.b.lanes(Type(I64.scalar, self.lanes))
        if stride != 1:
            steps = self.b.op("imul", steps, self.b.constant(stride, steps.type))
        return self.b.op("iadd", first, steps)


class Lanes(_Vectors):
    """The iterations of a `Spread` along its last variable, `lanes` at a time, from `first` to
    before `end`: where conditions that depend on the variable hold, as away from a grid's edges."""

    gathers = True

    def __init__(
        self, lowering: PlainLowering, spread: Spread, variables: Mapping[str, Index], lanes: int
    ) -> None:
        super().__init__(lowering, spread.body, spread.variables[-1], variables, lanes)
        self.first, self.end = 0, self.extent
        self.bounds: list[tuple[bool, Scalar, int]] = []  # of iterations, known where they run

    # --- what fits --------------------------------------------------------------------------------

    def fits(self) -> bool:
        return all(map(self._statement_fits, self.body)) and self.end - self.first >= self.lanes

    def _statement_fits(self, s: Statement) -> bool:
        if isinstance(s, Let):
            return self._let_fits(s)
        if isinstance(s, Assign):
            return s.name.dtype != "i64" and self._fits(s.value)
        if isinstance(s, Loop):
            self.gathers = False  # as many as there are iterations, where the loop may have vectors
            inside = all(isinstance(one, Let | Assign | If | Loop) for one in s.body)
            return inside and all(map(self._statement_fits, s.body))
        if isinstance(s, If):
            inside = all(isinstance(one, Let | Assign | If | Write) for one in (*s.body, *s.other))
            holds = all(map(self._condition_fits, _parts_of(s.condition)))
            return inside and holds and all(map(self._statement_fits, (*s.body, *s.other)))
        if not isinstance(s, Write) or self.walk.stride(s.index) != 1:
            return False
        return self._array(s.array).dtype in _STORED and self._fits(s.value)

    def _condition_fits(self, condition: Scalar) -> bool:
        """Whether all lanes have the same, or it holds from some iteration to another one."""
        if self._is_alike(condition):
            return True
        found = self._holding(condition)
        if found is None:
            bound = self._bound(condition)
            self.bounds += [bound] if bound else []
            return bound is not None
        self.first, self.end = max(self.first, found[0]), min(self.end, found[1])
        return True

    def _holding(self, condition: Scalar) -> tuple[int, int] | None:
        """From where to before where a comparison of what grows evenly holds."""
        if not isinstance(condition, Call) or condition.function not in ("lt", "le"):
            return None
        left, right = condition.args
        strides = self.walk.stride(left), self.walk.stride(right)
        at = {self.variable.name: 0, **self._places({self.variable.name: 0})}
        starts = [self._known(side, at) for side in (left, right)]
        if None in (*strides, *starts):
            return None
        grows = int(strides[1] or 0) - int(strides[0] or 0)
        room = int(starts[1] or 0) - int(starts[0] or 0) - (condition.function == "lt")
        if grows > 0:  # room + grows x >= 0
            return max(0, -(room // grows)), self.extent
        return 0, min(self.extent, room // -grows + 1)

    def _bound(self, condition: Scalar) -> tuple[bool, Scalar, int] | None:
        """Where a comparison of the variable with what is known outside begins (true) or ends to
        hold: at that and a number more."""
        if not isinstance(condition, Call) or condition.function not in ("lt", "le"):
            return None
        left, right = (side.arg if isinstance(side, Convert) else side for side in condition.args)
        begins = self._is_outside(condition.args[0])
        here, there = (right, condition.args[0]) if begins else (left, condition.args[1])
        at = {self.variable.name: 0, **self._places({self.variable.name: 0})}
        start = self._known(here, at)
        if self.walk.stride(here) != 1 or start is None or not self._is_outside(there):
            return None
        more = (condition.function == "lt") == begins
        return begins, there, int(more) - start

    def _is_outside(self, scalar: Scalar) -> bool:
        """Whether a whole number is known before the first iteration."""
        if isinstance(scalar, Name):
            return scalar.dtype in ("i32", "i64") and scalar.name in self.variables
        if isinstance(scalar, Call):
            return scalar.dtype in ("i32", "i64") and all(map(self._is_outside, scalar.args))
        return isinstance(scalar, Number)

    def span(self) -> tuple[Index, Index]:
        """From where to before where vectors may be."""
        first: Index = self.first
        end: Index = self.end
        for begins, scalar, more in self.bounds:
            where = self.lowering.scalar(convert(scalar, "i64"), self.variables)
            where = self.b.add(where, more)
            first = self.b.maximum(first, where) if begins else first
            end = end if begins else self.b.minimum(end, where)
        return first, end

    def _places(self, at: Mapping[str, int]) -> dict[str, int]:
        """Numbers that variables have at an iteration, where they depend on nothing else."""
        found = dict(at)
        for s in every(self.body):
            if isinstance(s, Let) and s.name.dtype == "i64":
                value = self._known(s.value, found)
                if value is not None:
                    found[s.name.name] = value
        return found

    def _known(self, scalar: Scalar, at: Mapping[str, int]) -> int | None:
        if isinstance(scalar, Number):
            return int(scalar.value)
        if isinstance(scalar, Name):
            return at.get(scalar.name)
        if not isinstance(scalar, Call) or scalar.function not in _OF_INDICES:
            return None
        args = [self._known(arg, at) for arg in scalar.args]
        return None if None in args else _OF_INDICES[scalar.function](*args)

    # --- vectors ----------------------------------------------------------------------------------

    @property
    def loops(self) -> bool:
        """Whether an iteration has loops of its own."""
        return any(isinstance(s, Loop) for s in every(self.body))

    def run(self, low: Index, high: Index) -> Index:
        """Emit whole vectors from `low` on; where those that are left before `high` begin."""
        count = self.b.index("idiv", self.b.sub(high, low), self.lanes)
        whole = self.b.add(low, self.b.mul(count, self.lanes))
        with self.b.loop(self.variable.name, low, whole, self.lanes, runs=False) as loop:
            self.variables[self.variable.name] = loop.variable
            self._block(self.body)
        return whole

    def _block(self, body: Iterable[Statement]) -> None:
        for s in body:
            self._emit(s)

    def _emit(self, s: Statement) -> None:
        if isinstance(s, Let):
            self._define(s)
            if s.name.name in self.walk.changing:
                self.vectors[s.name.name] = self._value(s.value)
        elif isinstance(s, Assign):
            self.vectors[s.name.name] = self._value(s.value)
        elif isinstance(s, If):
            self._if(s)
        elif isinstance(s, Loop):
            self._loop(s)
        else:
            assert isinstance(s, Write)
            array = self._array(s.array)
            value = self.lowering.rounded(array, self._value(s.value), s.value.dtype)
            self.b.store(value, self.lowering.address(array, s.index, self.variables))

    def _loop(self, s: Loop) -> None:
        """One iteration after the other, each by all lanes."""
        changed = [name for name in _changed(s.body) if name in self.vectors]
        initial = [self.vectors[name] for name in changed]
        with self.b.loop(s.variable.name, 0, s.extent, 1, initial) as loop:
            before = self.variables, self.vectors
            at = self.b.sub(s.extent - 1, loop.variable) if s.backward else loop.variable
            self.variables = {**self.variables, s.variable.name: at}
            self.vectors = {**self.vectors, **dict(zip(changed, loop.carried, strict=True))}
            self._block(s.body)
            loop.block.yields = tuple(self.vectors[name] for name in changed)
            self.variables, self.vectors = before
        self.vectors.update(zip(changed, loop.results, strict=True))

    def _if(self, s: If) -> None:
        """A branch where something is to be asked that is the same for all lanes."""
        asked = [part for part in _parts_of(s.condition) if self._is_alike(part)]
        if not asked:
            self._block(s.body)
            return
        holds = self.lowering.value(asked[0], self.variables)
        for part in asked[1:]:
            both = [holds, self.lowering.value(part, self.variables)]
            holds = apply_function(self.lowering.arith, "and", both)
        changed = [name for name in _changed((*s.body, *s.other)) if name in self.vectors]
        with self.b.branch(holds) as branch:
            branch.then.yields = self._inner(s.body, changed)
            self.b.otherwise(branch)
            branch.other.yields = self._inner(s.other, changed)
        self.vectors.update(zip(changed, branch.results, strict=True))

    def _inner(self, body: Iterable[Statement], changed: Iterable[str]) -> tuple[Value, ...]:
        variables, vectors = dict(self.variables), dict(self.vectors)
        self._block(body)
        found = tuple(self.vectors[name] for name in changed)
        self.variables, self.vectors = variables, vectors
        return found


def _parts_of(condition: Scalar) -> tuple[Scalar, ...]:
    """What has to hold together."""
    if isinstance(condition, Call) and condition.function == "and":
        return tuple(part for arg in condition.args for part in _parts_of(arg))
    return (condition,)


def _changed(body: Iterable[Statement]) -> list[str]:
    return list(dict.fromkeys(s.name.name for s in every(body) if isinstance(s, Assign)))


def _unsigned(dtype: str) -> bool:
    return dtype_of(dtype).kind in ("bool", "uint")


class Sums(_Vectors):
    """A loop that only adds up, by vectors: `TURNS` of them go on beside each other, so that none
    waits for the one before."""

    def fits(self) -> bool:
        return self.extent >= self.lanes * TURNS and all(map(self._statement_fits, self.body))

    def _statement_fits(self, s: Statement) -> bool:
        if isinstance(s, Let):
            return self._let_fits(s)
        here = isinstance(s, Assign) and self.variables.get(s.name.name)
        alone = isinstance(here, Value) and not here.type.lanes
        return alone and isinstance(s, Assign) and s.name.dtype == "f32" and self._fits(_added(s))

    def run(self) -> tuple[dict[str, Value], int]:
        """Emit whole vectors; the sums behind them, and where what is left begins."""
        step = self.lanes * TURNS
        whole = self.extent // step * step
        names = [s.name.name for s in self.body if isinstance(s, Assign)]
        zero = self.b.constant(0, Type("f32", self.lanes))
        initial = [zero] * len(names) * TURNS
        with self.b.loop(self.variable.name, 0, whole, step, initial) as loop:
            left: list[Value] = []
            for turn in range(TURNS):
                self.vectors = {}
                self.variables[self.variable.name] = self.b.add(loop.variable, turn * self.lanes)
                held = loop.carried[turn * len(names) : (turn + 1) * len(names)]
                left += self._turn(dict(zip(names, held, strict=True)))
            loop.block.yields = tuple(left)
        found = {}
        for number, name in enumerate(names):
            parts = [loop.results[turn * len(names) + number] for turn in range(TURNS)]
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
