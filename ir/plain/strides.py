"""How indices of a plain kernel move along a loop, and what a kernel's loops cost.

Knows no target: bytes are those of memory's lines, a step is one iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ir.dtypes import dtype_of
from ir.plain.accesses import nested, scalars_of
from ir.plain.code import (
    TENSOR,
    Accumulate,
    Assign,
    Between,
    Call,
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

LINE = 64  # bytes that memory moves at least


@dataclass(frozen=True, slots=True)
class Walk:
    """Along `variable`, with what variables were defined as; `changing` ones are anything."""

    variable: str
    defined: Mapping[str, Scalar]
    changing: frozenset[str] = frozenset()

    def stride(self, scalar: Scalar) -> int | None:
        """By how much a scalar grows from one iteration to the next; None: not evenly."""
        match scalar:
            case Name():
                if scalar.name == self.variable:
                    return 1
                if scalar.name in self.changing:
                    return None
                known = self.defined.get(scalar.name)
                return 0 if known is None else self.stride(known)
            case Number():
                return 0
            case Call():
                return self._of_call(scalar)
            case Convert():
                return self.stride(scalar.arg) if scalar.to == "i64" else self._fixed((scalar.arg,))
            case Element():
                return self._fixed((scalar.index,))

    def _of_call(self, call: Call) -> int | None:
        if call.dtype != "i64" or call.function not in ("add", "sub", "mul"):
            return self._fixed(call.args)
        left, right = (self.stride(arg) for arg in call.args)
        if left is None or right is None:
            return None
        if call.function != "mul":
            return left + right if call.function == "add" else left - right
        if left == 0 == right:
            return 0
        factor = call.args[1]
        return left * int(factor.value) if isinstance(factor, Number) else None

    def _fixed(self, args: Iterable[Scalar]) -> int | None:
        return 0 if all(self.stride(arg) == 0 for arg in args) else None


def steps_of(statements: Iterable[Statement]) -> float:
    """Iterations of all loops, of which those of an inner one count as often as it runs."""
    found = 0.0
    for statement in statements:
        if isinstance(statement, If):
            found += statement.often * max(steps_of(block) for block in nested(statement))
        elif isinstance(statement, Loop | Between | Spread | Accumulate):
            inner = sum(steps_of(block) for block in nested(statement))
            found += extent_of(statement) * (1.0 + inner)
    return found


def statements_of(statements: Iterable[Statement]) -> float:
    """Statements as often as they are run."""
    found = 0.0
    for statement in statements:
        if isinstance(statement, If):
            most = max(statements_of(block) for block in nested(statement))
            found += 1.0 + statement.often * most
        elif isinstance(statement, Loop | Between | Spread | Accumulate):
            inner = sum(statements_of(block) for block in nested(statement))
            found += extent_of(statement) * (1.0 + inner)
        else:
            found += 1.0
    return found


def extent_of(statement: Loop | Between | Spread | Accumulate) -> int:
    """Iterations of a loop, or how many there are thought to be."""
    if isinstance(statement, Between):
        return statement.often
    if isinstance(statement, Spread):
        return prod(extent for _, extent in statement.variables)
    return statement.extent


def moved_bytes(kernel: PlainKernel, cache: int = 0) -> float:
    """What one point moves to and from tensors, and arrays that a `cache` of so many bytes does not
    hold: whole lines where neighbours in time are apart."""
    last = kernel.points[-1][0].name if kernel.points else ""
    sizes = {
        a.name: size for a in kernel.arrays
        if (size := dtype_of(a.dtype).bytes) and (a.place == TENSOR or a.size * size > cache > 0)
    }  # fmt: skip
    return _Moved(sizes).block(kernel.body, last, {})


class _Moved:
    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes

    def block(
        self, statements: Sequence[Statement], variable: str, defined: Mapping[str, Scalar]
    ) -> float:
        found, known = 0.0, dict(defined)
        changing = frozenset(s.name.name for s in statements if isinstance(s, Assign))
        for s in statements:
            walk = Walk(variable, known, changing)
            scalars = () if isinstance(s, Accumulate) else scalars_of(s)
            found += sum(self._bytes(walk, e.array, e.index) for e in elements(scalars))
            if isinstance(s, Write | Combine):
                found += self._bytes(walk, s.array, s.index)
            if isinstance(s, Let):
                known[s.name.name] = s.value
            if isinstance(s, If):
                most = max(self.block(block, variable, known) for block in nested(s))
                found += s.often * most
            elif isinstance(s, Loop | Between | Spread | Accumulate):
                own = _fastest(s, variable)
                inner = self._values(s, own, known) if isinstance(s, Accumulate) else 0.0
                inner += sum(self.block(block, own, known) for block in nested(s))
                found += extent_of(s) * inner
        return found

    def _values(self, s: Accumulate, own: str, known: Mapping[str, Scalar]) -> float:
        lets = {t.name.name: t.value for t in s.body if isinstance(t, Let)}
        walk = Walk(own, {**known, **lets})
        return sum(self._bytes(walk, e.array, e.index) for e in elements(s.values))

    def _bytes(self, walk: Walk, array: str, index: Scalar) -> float:
        size = self.sizes.get(array)
        if size is None:
            return 0.0
        stride = walk.stride(index)
        return float(LINE if stride is None else min(LINE, abs(stride) * size))


def elements(scalars: Iterable[Scalar]) -> Iterator[Element]:
    """Reads of arrays in scalars, those in indices too."""
    for scalar in scalars:
        if isinstance(scalar, Element):
            yield scalar
            yield from elements((scalar.index,))
        elif isinstance(scalar, Call):
            yield from elements(scalar.args)
        elif isinstance(scalar, Convert):
            yield from elements((scalar.arg,))


def _fastest(s: Loop | Between | Spread | Accumulate, outside: str) -> str:
    """The variable that changes with every iteration."""
    if isinstance(s, Spread):
        return s.variables[-1][0].name if s.variables else outside
    return s.variable.name
