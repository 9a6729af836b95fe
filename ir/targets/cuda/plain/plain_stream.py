"""What a fold of a plain kernel streams: elements that its iterations read and write in a row.

Knows no text and no schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from ir.dtypes import dtype_of
from ir.plain.accesses import every, names_in
from ir.plain.code import (
    Accumulate,
    Assign,
    Call,
    Combine,
    Let,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Statement,
    Write,
)
from ir.plain.scalars import index, replaced
from ir.plain.strides import Walk, elements

WIDEST = 16  # bytes of an access


@dataclass(frozen=True, slots=True)
class Stream:
    """One element of an array for each iteration of a fold, in the order in which it goes.

    `first` is where that of the first iteration is, each next one `step` further. `unit` is how
    many a thread may move at a time: such groups of iterations begin at multiples of their size
    in memory, and the fold's extent is a multiple of it.
    """

    array: str
    dtype: str
    place: Scalar
    first: Scalar
    step: int
    unit: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return dtype_of(self.dtype).bytes

    @property
    def beside(self) -> bool:
        """Whether elements lie side by side."""
        return abs(self.step) == 1


@dataclass(frozen=True, slots=True)
class Streams:
    """Those that are read, in what an iteration brings, and those that are written at its end."""

    reads: tuple[Stream, ...]
    writes: tuple[Stream, ...]

    def beside(self) -> Streams:
        """Those whose elements lie side by side."""
        reads, writes = (tuple(s for s in all_ if s.beside) for all_ in (self.reads, self.writes))
        return Streams(reads, writes)


def streams_of(kernel: PlainKernel, fold: Accumulate) -> Streams:
    """The streams of one of a kernel's folds: inputs that every iteration reads, outputs that every
    iteration writes once."""
    return _Finder(kernel, fold).streams()


class _Finder:
    def __init__(self, kernel: PlainKernel, fold: Accumulate) -> None:
        self.kernel, self.fold = kernel, fold
        self.dtypes = {array.name: array.dtype for array in kernel.arrays}
        self.inputs = {spec.name for spec in kernel.tensors if spec.role == "input"}
        self.outputs = {spec.name for spec in kernel.tensors if spec.role == "output"}
        statements = tuple(every(kernel.body))
        self.changing = frozenset(s.name.name for s in statements if isinstance(s, Assign))
        self.lets = {s.name.name: s.value for s in statements if isinstance(s, Let)}
        self.own = {s.name.name for s in every((*fold.body, *fold.keep)) if isinstance(s, Let)}
        self.written = [s.array for s in statements if isinstance(s, Write | Combine)]

    def streams(self) -> Streams:
        return Streams(tuple(self._reads()), tuple(self._writes()))

    def _reads(self) -> Iterator[Stream]:
        scalars = [s.value for s in self.fold.body if isinstance(s, Let)]
        for element in dict.fromkeys(elements((*scalars, *self.fold.values))):
            if element.array in self.inputs and element.array not in self.written:
                yield from self._stream(element.array, element.index)

    def _writes(self) -> Iterator[Stream]:
        for write in self.fold.keep:
            alone = isinstance(write, Write) and self.written.count(write.array) == 1
            if isinstance(write, Write) and alone and write.array in self.outputs:
                yield from self._stream(write.array, write.index)

    def _stream(self, array: str, place: Scalar) -> Iterator[Stream]:
        """One that moves evenly, if it moves."""
        stride = Walk(self.fold.variable.name, self.lets, self.changing).stride(place)
        if not stride:
            return
        inlined = self._inlined(place)
        first = index(self.fold.extent - 1 if self.fold.backward else 0)
        start = replaced(inlined, {self.fold.variable: first})
        step = -stride if self.fold.backward else stride
        dtype = self.dtypes[array]
        unit = self._unit(inlined, stride, dtype) if abs(stride) == 1 else 1
        yield Stream(array, dtype, place, start, step, unit)

    def _inlined(self, scalar: Scalar) -> Scalar:
        """A scalar of what is known outside the fold, and its variable."""
        names = {n for n in names_in(scalar) if n.name in self.own}
        if not names:
            return scalar
        return replaced(scalar, {name: self._inlined(self.lets[name.name]) for name in names})

    def _unit(self, place: Scalar, stride: int, dtype: str) -> int:
        """A group begins at a multiple of what divides all that its place is a sum of."""
        terms = _terms(place, 1, self.lets)
        del terms[self.fold.variable]
        rest = terms.pop(None, 0) + (0 if stride == 1 else 1)
        divisor = gcd(self.fold.extent, rest, *terms.values())
        most = WIDEST // dtype_of(dtype).bytes
        return min(divisor & -divisor, most) if divisor else most


def _terms(scalar: Scalar, factor: int, lets: Mapping[str, Scalar]) -> dict[Scalar | None, int]:
    """An index as a sum: what of, how often; None: the constant."""
    if isinstance(scalar, Number):
        return {None: factor * int(scalar.value)}
    if isinstance(scalar, Name) and scalar.dtype == "i64" and scalar.name in lets:
        return _terms(lets[scalar.name], factor, lets)
    if isinstance(scalar, Call) and scalar.dtype == "i64":
        left, right = (*scalar.args, *scalar.args)[:2]
        if scalar.function in ("add", "sub"):
            sign = 1 if scalar.function == "add" else -1
            parts = (_terms(left, factor, lets), _terms(right, sign * factor, lets))
            return {k: sum(p.get(k, 0) for p in parts) for k in (*parts[0], *parts[1])}
        if scalar.function == "mul" and isinstance(right, Number):
            return _terms(left, factor * int(right.value), lets)
    return {scalar: factor}


def streamed(
    statements: Sequence[Statement], reads: Mapping[Scalar, Scalar]
) -> tuple[Statement, ...]:
    """The statements with other scalars in the place of what they read, at the outermost level."""
    return tuple(
        replace(s, value=replaced(s.value, reads)) if isinstance(s, Let) else s for s in statements
    )


def kept(
    statements: Iterable[Statement], writes: Mapping[str, tuple[str, Scalar]]
) -> tuple[Statement, ...]:
    """The statements, writing elsewhere, at the outermost level."""
    found = []
    for s in statements:
        if isinstance(s, Write) and s.array in writes:
            array, place = writes[s.array]
            s = replace(s, array=array, index=place)
        found.append(s)
    return tuple(found)
