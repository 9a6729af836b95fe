"""What a plain kernel computes, scalar by scalar: for small sizes, to check kernels by.

Points and shared iterations run in any order. Raises ProgramError where an index is outside, what
is read was not written, or threads that do not wait for each other meet in one element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ir.dtypes import compute_dtype, from_float, is_float, numpy_dtype, rounded, to_float, within
from ir.errors import ProgramError
from ir.ops.base import Array as Numbers
from ir.ops.map import Map
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
from ir.plain.scalars import merged
from ir.scalar import COMBINES

_TYPES: dict[str, type] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


# who wrote an element: a kernel before, points that may meet, or one of the rounds before
_BEFORE, _COMBINED, _EARLIER = -2, -3, -4


def meanings(
    kernels: Sequence[PlainKernel], inputs: Mapping[str, Numbers], seed: int = 0
) -> dict[str, Numbers]:
    """The outputs of kernels that run one after the other."""
    known = dict(inputs)
    for kernel in kernels:
        known |= meaning(kernel, known, seed)
    return {name: array for name, array in known.items() if name not in inputs}


def meaning(
    kernel: PlainKernel, inputs: Mapping[str, Numbers], seed: int = 0
) -> dict[str, Numbers]:
    """The outputs for inputs in storage dtypes, in storage dtypes; `seed` is that of the order.

    Among `inputs` may be what kernels before left in an output, for elements to be combined with.
    """
    run = _Run(kernel, inputs, np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        run.points()
    return {
        spec.name: run.arrays[spec.name].stored().reshape(spec.shape)
        for spec in kernel.tensors
        if spec.role == "output"
    }


class _Memory:
    """An array's elements, widened, and who wrote each: nobody (-1), or a point by its number.

    `given`: they are an input's, and stay.
    """

    def __init__(self, array: Array, values: Numbers | None, given: bool) -> None:
        self.array = array
        kind = np.dtype(_TYPES[compute_dtype(array.dtype)])
        self.values = np.zeros(array.size, kind)
        self.owner = np.full(array.size, -1)
        if values is not None:
            self.values[:] = to_float(values.reshape(-1), array.dtype)
            self.owner[:] = _BEFORE
        self.given = given

    def place(self, index: int) -> int:
        if not 0 <= index < self.array.size:
            raise ProgramError(f"{self.array.name}: element {index} of {self.array.size}")
        return index

    def stored(self) -> Numbers:
        missing = np.flatnonzero(self.owner == -1)
        if self.array.partly:  # what is there before is as good as anything
            self.values[missing] = 1 if self.values.dtype.kind == "b" else 119
            missing = missing[:0]
        if missing.size:
            raise ProgramError(f"{self.array.name}: element {missing[0]} is never written")
        return from_float(self.values, self.array.dtype).astype(numpy_dtype(self.array.dtype))


class _Shared:
    """What the iterations of one `Spread`, or of a fold whose states are kept, touch: none what
    another one writes."""

    def __init__(self, names: set[str]) -> None:
        self.iteration = 0
        self.names = names  # what was defined before
        self._writes: dict[tuple[str, int], int] = {}
        self._reads: dict[tuple[str, int], set[int]] = {}
        self._claimed: set[tuple[str, int]] = set()

    def read(self, array: str, place: int) -> None:
        self._reads.setdefault((array, place), set()).add(self.iteration)
        self._alone(array, place, {self._writes.get((array, place), self.iteration)})

    def write(self, array: str, place: int) -> None:
        before = self._writes.setdefault((array, place), self.iteration)
        self._alone(array, place, {before} | self._reads.get((array, place), set()))

    def claim(self, array: str, place: int) -> None:
        self._claimed.add((array, place))
        self._alone(array, place, set())

    def _alone(self, array: str, place: int, others: set[int]) -> None:
        touched = (array, place) in self._writes or (array, place) in self._reads
        if (array, place) in self._claimed and touched:
            raise ProgramError(f"{array}: element {place} is combined and used in one Spread")
        if others - {self.iteration}:
            raise ProgramError(f"{array}: iterations of a Spread meet in element {place}")


class _Run:
    """One run of a kernel: memory, variables, and at which point it is."""

    def __init__(
        self, kernel: PlainKernel, inputs: Mapping[str, Numbers], order: np.random.Generator
    ) -> None:
        self.kernel, self.order = kernel, order
        given = {spec.name for spec in kernel.tensors if spec.role == "input"}
        self.arrays = {
            array.name: _Memory(array, inputs.get(array.name), array.name in given)
            for array in kernel.arrays
        }
        self.names: dict[str, Any] = {}
        self.point = 0
        self.shared: _Shared | None = None
        self._functions: dict[int, tuple[Call, Callable[..., Any]]] = {}  # of calls, by identity
        self._merges: dict[int, tuple[Sequence[Name], Sequence[Scalar]]] = {}  # of folds, likewise

    def points(self) -> None:
        """All points, in each of the rounds."""
        if self.kernel.rounds is None:
            self._round({})
            return
        name, count = self.kernel.rounds
        for number in range(count):
            for memory in self.arrays.values():
                memory.owner[memory.owner >= 0] = _EARLIER
            self._round({name.name: np.int64(number)})

    def _round(self, names: Mapping[str, Any]) -> None:
        for point, places in self._shuffled(self.kernel.points):
            self.point = point
            for memory in self.arrays.values():
                if memory.array.place != TENSOR:
                    memory.owner[:] = -1
            self.names = {**names, **dict(places)}
            self.block(self.kernel.body)

    def _shuffled(
        self, variables: Sequence[tuple[Name, int]]
    ) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
        """Numbers of points and their coordinates, in an order of no meaning."""
        spans = (range(extent) for _, extent in variables)
        found = list(enumerate(itertools.product(*spans)))
        for place in self.order.permutation(len(found)):
            number, coordinates = found[place]
            pairs = zip(variables, coordinates, strict=True)
            yield number, [(name.name, np.int64(value)) for (name, _), value in pairs]

    # --- statements -------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is defined inside is unknown behind."""
        known = len(self.names)
        yield
        self._forget(known)

    def _forget(self, known: int) -> None:
        """All names but those that were first: a dictionary keeps the order of definitions."""
        while len(self.names) > known:
            self.names.popitem()

    def block(self, statements: Sequence[Statement]) -> None:
        known = len(self.names)
        for statement in statements:
            self.run(statement)
        self._forget(known)

    def run(self, statement: Statement) -> None:
        if isinstance(statement, Let):
            if statement.name.name in self.names:
                raise ProgramError(f"{statement.name.name} is defined twice")
            self.names[statement.name.name] = self._typed(statement.value, statement.name)
        elif isinstance(statement, Assign):
            self._assign(statement)
        elif isinstance(statement, Write):
            self._write(statement)
        elif isinstance(statement, Combine):
            self._combine(statement)
        elif isinstance(statement, Claim):
            self._claim(statement)
        elif isinstance(statement, If):
            chosen = statement.body if self.value(statement.condition) else statement.other
            self.block(chosen)
        elif isinstance(statement, Loop):
            for place in _order(statement.extent, statement.backward):
                with self.scope():
                    self.names[statement.variable.name] = place
                    self.block(statement.body)
        elif isinstance(statement, Between):
            first, end = (int(self.value(bound)) for bound in (statement.first, statement.end))
            for number in range(first, end):
                with self.scope():
                    self.names[statement.variable.name] = np.int64(number)
                    self.block(statement.body)
        elif isinstance(statement, Spread):
            self._spread(statement)
        else:
            self._accumulate(statement)

    def _assign(self, statement: Assign) -> None:
        name = statement.name.name
        if name not in self.names:
            raise ProgramError(f"{name} is assigned before it is defined")
        if self.shared is not None and name in self.shared.names:
            raise ProgramError(f"{name} is assigned in a Spread and defined outside")
        self.names[name] = self._typed(statement.value, statement.name)

    def _write(self, statement: Write) -> None:
        memory = self.arrays[statement.array]
        place = memory.place(int(self.value(statement.index)))
        value = self.value(statement.value)
        if statement.value.dtype != compute_dtype(memory.array.dtype):
            raise ProgramError(f"{statement.array} is {memory.array.dtype}, not {value.dtype}")
        if memory.given:
            raise ProgramError(f"{statement.array} is an input")
        if memory.owner[place] not in (-1, _BEFORE, _EARLIER, self.point):
            raise ProgramError(f"{statement.array}: points meet in element {place}")
        value = _as(value, memory.array.dtype)
        same = memory.owner[place] == self.point and memory.values[place] == value
        if self.shared is not None:
            if not same:  # what writes an element as it is, nobody sees
                self.shared.write(statement.array, place)
        elif self.kernel.cooperative:
            raise ProgramError(f"{statement.array} is written outside a Spread")
        memory.owner[place] = self.point
        memory.values[place] = value

    def _combine(self, statement: Combine) -> None:
        memory = self.arrays[statement.array]
        place = memory.place(int(self.value(statement.index)))
        value = self.value(statement.value)
        if statement.value.dtype != memory.array.dtype:
            raise ProgramError(f"{statement.array} is {memory.array.dtype}, not {value.dtype}")
        own = memory.array.place != TENSOR and memory.owner[place] == self.point
        if memory.given or not (own or memory.owner[place] in (_BEFORE, _COMBINED)):
            raise ProgramError(f"{statement.array}: element {place} is combined with nothing")
        if own and self.shared is not None:
            self.shared.claim(statement.array, place)
        kind = statement.kind
        function = np.logical_or if kind == "or" else COMBINES[kind].meaning
        memory.owner[place] = self.point if own else _COMBINED
        memory.values[place] = function(memory.values[place], value)

    def _claim(self, statement: Claim) -> None:
        """Iterations come in an order of no meaning, and so do their numbers."""
        memory = self.arrays[statement.array]
        place = memory.place(int(self.value(statement.index)))
        if memory.array.place == TENSOR or memory.array.dtype != "i32":
            raise ProgramError(f"{statement.array}: numbers are a {GROUP}'s, and i32")
        if memory.owner[place] != self.point:
            raise ProgramError(f"{statement.array}: element {place} is claimed, not written")
        if self.shared is not None:
            self.shared.claim(statement.array, place)
        self.names[statement.name.name] = memory.values[place]
        memory.values[place] += 1

    def _spread(self, statement: Spread) -> None:
        if self.shared is not None:
            raise ProgramError("a Spread in a Spread")
        self.shared = _Shared(set(self.names))
        for iteration, places in self._shuffled(statement.variables):
            self.shared.iteration = iteration
            with self.scope():
                self.names.update(places)
                self.block(statement.body)
        self.shared = None

    def _accumulate(self, statement: Accumulate) -> None:
        if id(statement) not in self._merges:
            names = [Name(f"{state.name} after", state.dtype) for state in statement.states]
            self._merges[id(statement)] = names, merged(statement.merge, statement.states, names)
        right, after = self._merges[id(statement)]
        shares = bool(statement.keep) and self.kernel.cooperative and self.shared is None
        if shares:  # any thread may have an iteration
            self.shared = _Shared(set(self.names))
        for number, place in enumerate(_order(statement.extent, statement.backward)):
            if shares and self.shared:
                self.shared.iteration = number
            with self.scope():
                self.names[statement.variable.name] = place
                with self.scope():
                    for inner in statement.body:
                        self.run(inner)
                    pairs = zip(statement.values, right, strict=True)
                    found = [self._typed(value, name) for value, name in pairs]
                if number:
                    self.names.update((n.name, v) for n, v in zip(right, found, strict=True))
                    found = [self.value(scalar) for scalar in after]
                self.names.update((n.name, v) for n, v in zip(statement.states, found, strict=True))
                self.block(statement.keep)
            self.names.update((n.name, v) for n, v in zip(statement.states, found, strict=True))
        if shares:
            self.shared = None

    # --- scalars ----------------------------------------------------------------------------------

    def _typed(self, scalar: Scalar, name: Name) -> Any:
        if scalar.dtype != name.dtype:
            raise ProgramError(f"{name.name} is {name.dtype}, not {scalar.dtype}")
        return self.value(scalar)

    def value(self, scalar: Scalar) -> Any:
        if isinstance(scalar, Number):
            return _TYPES[scalar.dtype](scalar.value)
        if isinstance(scalar, Name):
            if scalar.name not in self.names:
                raise ProgramError(f"{scalar.name} is not defined")
            return self.names[scalar.name]
        if isinstance(scalar, Convert):
            return _TYPES[scalar.dtype](_as(self.value(scalar.arg), scalar.to))
        if isinstance(scalar, Element):
            return self._element(scalar)
        return self._call(scalar)

    def _call(self, scalar: Call) -> Any:
        if scalar.function == "where":
            return self.value(scalar.args[1] if self.value(scalar.args[0]) else scalar.args[2])
        if id(scalar) not in self._functions:
            self._functions[id(scalar)] = scalar, _function(scalar)
        _, function = self._functions[id(scalar)]
        return _TYPES[scalar.dtype](function(*[np.asarray(self.value(a)) for a in scalar.args]))

    def _element(self, scalar: Element) -> Any:
        memory = self.arrays[scalar.array]
        place = memory.place(int(self.value(scalar.index)))
        if not memory.given and memory.owner[place] not in (self.point, _EARLIER):
            raise ProgramError(f"{scalar.array}: element {place} is read and was not written")
        if not memory.given and self.shared is not None:
            self.shared.read(scalar.array, place)
        return memory.values[place]


def _function(scalar: Call) -> Callable[..., Any]:
    """On arrays of numbers."""
    if len({arg.dtype for arg in scalar.args}) > 1:
        raise ProgramError(f"{scalar.function} of {[arg.dtype for arg in scalar.args]}")
    op = scalar.like or Map(scalar.function)
    types = [scalar.source] if scalar.source else [arg.dtype for arg in scalar.args]
    return op.numpy(types)


def _order(extent: int, backward: bool) -> list[Any]:
    places = [np.int64(place) for place in range(extent)]
    return places[::-1] if backward else places


def _as(value: Any, dtype: str) -> Any:
    """A number as a dtype has it, widened."""
    if value.dtype == _TYPES.get(dtype):
        return value
    array = np.asarray(value).reshape(1)
    if is_float(dtype):
        return rounded(array.astype(np.float64), dtype)[0]
    return within(array, dtype)[0]
