"""The nest IR: structured loops over typed SSA values, printed by `llvm.py` and by `c.py`.

Knows vectors, masks, pointers and loops; knows nothing of programs, schedules or stages. Integers
that are known stay Python ints (operands are `Value | int`), so index arithmetic folds as it is
built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SCALAR_BYTES = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "bf16": 2,
    "f16": 2,
    "e4m3": 1,
    "e5m2": 1,
    "e2m1": 1,
    "e8m0": 1,
    "f32": 4,
    "f64": 8,
    "ptr": 8,
}


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar (`lanes` == 0) or a vector of `lanes` scalars."""

    scalar: str
    lanes: int = 0

    @property
    def bytes(self) -> int:
        return SCALAR_BYTES[self.scalar] * max(1, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.scalar in ("f32", "f64", *NARROW_FLOATS)

    def of(self, scalar: str) -> Type:
        """The same shape with other elements."""
        return Type(scalar, self.lanes)

    def __str__(self) -> str:
        return f"{self.scalar}x{self.lanes}" if self.lanes else self.scalar


# stored and converted, never computed with
NARROW_FLOATS = ("bf16", "f16", "e4m3", "e5m2", "e2m1", "e8m0")
WRAPPING = ("iadd", "isub", "imul")
NEAR = 4  # elements from lane to lane, up to which as many vectors are no dearer than a gather
MOST_CHOSEN = 32  # entries of a table that two vector registers hold
I64, PTR, BIT = Type("i64"), Type("ptr"), Type("i1")


class Value:
    """One SSA value; `name` is a hint for readers, `id` is unique in the function."""

    __slots__ = ("id", "name", "type")

    def __init__(self, id: int, type: Type, name: str = "") -> None:
        self.id = id
        self.type = type
        self.name = name


Operand = Value | int | float
Index = Value | int


class Instruction:
    """`op` applied to `args`; `attrs` holds what is not a value (predicate, offset, row, ...)."""

    __slots__ = ("args", "attrs", "op", "result")

    def __init__(
        self, op: str, result: Value | None, args: tuple[Any, ...], attrs: dict[str, Any]
    ) -> None:
        self.op = op
        self.result = result
        self.args = args
        self.attrs = attrs


class Block:
    """A straight run of instructions and nested loops; `yields` feed the enclosing construct."""

    __slots__ = ("body", "yields")

    def __init__(self) -> None:
        self.body: list[Instruction | Loop | Branch | Comment] = []
        self.yields: tuple[Operand, ...] = ()


class Comment:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Loop:
    """`for (variable = low; variable < high; variable += step)` with carried values.

    `runs` promises at least one iteration (the printers then test at the bottom).
    """

    __slots__ = (
        "block",
        "carried",
        "high",
        "initial",
        "low",
        "results",
        "runs",
        "step",
        "variable",
    )

    def __init__(
        self,
        variable: Value,
        low: Index,
        high: Index,
        step: int,
        initial: tuple[Operand, ...],
        carried: tuple[Value, ...],
        results: tuple[Value, ...],
        runs: bool,
    ) -> None:
        self.variable, self.low, self.high, self.step = variable, low, high, step
        self.initial, self.carried, self.results, self.runs = initial, carried, results, runs
        self.block = Block()


class Branch:
    """`if (condition) then else other`, yielding `results`."""

    __slots__ = ("condition", "other", "results", "then")

    def __init__(self, condition: Value) -> None:
        self.condition = condition
        self.results: tuple[Value, ...] = ()
        self.then = Block()
        self.other = Block()


@dataclass(slots=True)
class Function:
    """A finished SPMD body: `parameters` are (thread, threads, args, team)."""

    name: str
    parameters: tuple[Value, ...]
    block: Block
    externals: dict[str, str] = field(default_factory=dict)


_FOLD: dict[str, Callable[[int, int], int]] = {
    "iadd": lambda a, b: a + b,
    "isub": lambda a, b: a - b,
    "imul": lambda a, b: a * b,
    "imin": min,
    "imax": max,
    "idiv": lambda a, b: a // b,
    "irem": lambda a, b: a % b,
}


def _by_way_of(source: str, target: str) -> str:
    """The scalar between two that do not convert into each other at once, or ""."""
    if source in NARROW_FLOATS or target in NARROW_FLOATS:
        return "" if "f32" in (source, target) else "f32"
    return "i32" if source in ("f32", "f64") and target in ("i8", "i16") else ""


class Builder:
    """Appends to the current block. Every method returns the value that it defines."""

    def __init__(self, name: str) -> None:
        self._next = 0
        self.function = Function(
            name,
            (
                self.fresh(I64, "thread"),
                self.fresh(I64, "threads"),
                self.fresh(PTR, "args"),
                self.fresh(PTR, "team"),
            ),
            Block(),
        )
        self.block = self.function.block
        self._cse: list[dict[tuple[Any, ...], Value]] = [{}]

    def fresh(self, type: Type, name: str = "") -> Value:
        self._next += 1
        return Value(self._next, type, name)

    def emit(self, op: str, type: Type | None, *args: Any, name: str = "", **attrs: Any) -> Value:
        """Append an instruction. For void instructions the returned value must not be used."""
        result = self.fresh(type, name) if type is not None else None
        self.block.body.append(Instruction(op, result, args, attrs))
        return result  # type: ignore[return-value]

    def comment(self, text: str) -> None:
        self.block.body.append(Comment(text))

    # -- index arithmetic, folded and shared within the enclosing scopes

    def _pure(self, op: str, type: Type, *args: Any, **attrs: Any) -> Value:
        key = (
            op,
            type,
            *(("v", a.id) if isinstance(a, Value) else a for a in args),
            *attrs.items(),
        )
        for scope in reversed(self._cse):
            known: Value | None = scope.get(key)
            if known is not None:
                return known
        value = self.emit(op, type, *args, **attrs)
        self._cse[-1][key] = value
        return value

    def index(self, op: str, left: Index, right: Index, wraps: bool = False) -> Index:
        """`op`: iadd, isub, imul, imin, imax, idiv or irem (no negative operands for these two).

        With `wraps` it may leave the range of i64, and keeps the low bits.
        """
        if isinstance(left, int) and isinstance(right, int):
            return int(_FOLD[op](left, right))
        if right == 0 and op in ("iadd", "isub"):
            return left
        if left == 0 and op == "iadd":
            return right
        if op == "imul" and (left == 0 or right == 0):
            return 0
        if op in ("imul", "idiv") and right == 1:
            return left
        if op == "imul" and left == 1:
            return right
        if op in ("imin", "imax") and left is right:
            return left
        return self._pure(op, I64, left, right, **({"wraps": True} if wraps else {}))

    def add(self, left: Index, right: Index) -> Index:
        return self.index("iadd", left, right)

    def sub(self, left: Index, right: Index) -> Index:
        return self.index("isub", left, right)

    def mul(self, left: Index, right: Index) -> Index:
        return self.index("imul", left, right)

    def minimum(self, left: Index, right: Index) -> Index:
        return self.index("imin", left, right)

    def maximum(self, left: Index, right: Index) -> Index:
        return self.index("imax", left, right)

    def compare(self, predicate: str, left: Index, right: Index) -> Value | bool:
        """Signed comparison of indices: eq, ne, lt, le, gt, ge. Folds to a bool."""
        if isinstance(left, int) and isinstance(right, int):
            return {
                "eq": left == right,
                "ne": left != right,
                "lt": left < right,
                "le": left <= right,
                "gt": left > right,
                "ge": left >= right,
            }[predicate]
        return self._pure("icmp", BIT, left, right, predicate=predicate)

    def offset(self, pointer: Value, offset_bytes: Index) -> Value:
        """pointer + bytes."""
        if offset_bytes == 0:
            return pointer
        return self._pure("offset", PTR, pointer, offset_bytes)

    # -- memory

    def load(self, type: Type, pointer: Value, at: int = 0, mask: int = 0) -> Value:
        """Load at pointer + `at` bytes; `mask` > 0 reads that many leading lanes, the rest is 0."""
        if mask == type.lanes:
            mask = 0
        return self.emit("load", type, pointer, at=at, mask=mask)

    def store(
        self, value: Value, pointer: Value, at: int = 0, mask: int = 0, stream: bool = False
    ) -> None:
        """Store at pointer + `at` bytes; `mask` > 0 writes that many leading lanes."""
        if mask == value.type.lanes:
            mask = 0
        self.emit("store", None, value, pointer, at=at, mask=mask, stream=stream)

    def gather(self, type: Type, pointer: Value, stride: int, at: int = 0, mask: int = 0) -> Value:
        """Lane l reads pointer + at + l * stride bytes."""
        return self.emit("gather", type, pointer, at=at, stride=stride, mask=mask)

    def scatter(
        self, value: Value, pointer: Value, stride: int, at: int = 0, mask: int = 0
    ) -> None:
        """Lane l writes pointer + at + l * stride bytes."""
        self.emit("scatter", None, value, pointer, at=at, stride=stride, mask=mask)

    def gather_at(self, type: Type, pointer: Value, lanes: Value) -> Value:
        """Lane l reads pointer + lanes[l] bytes (`lanes` is a vector of i64)."""
        return self.emit("gather_at", type, pointer, lanes)

    def prefetch(self, pointer: Value, at: int = 0) -> None:
        self.emit("prefetch", None, pointer, at=at)

    # -- arithmetic on scalars and vectors

    def constant(self, value: float, type: Type) -> Value:
        """A literal, splat over the lanes."""
        return self._pure("constant", type, float(value) if type.is_float else int(value))

    def table(self, entries: tuple[float, ...], scalar: str) -> Value:
        """The address of constants that lie in memory, one after another."""
        return self._pure("table", PTR, entries, scalar)

    def chosen(self, entries: tuple[float, ...], scalar: str, index: Value) -> Value:
        """Lane l is entries[index[l]] (`index` is a vector of i32 inside of them), out of
        registers where the machine can; entries are 32 bits wide, `MOST_CHOSEN` at most."""
        return self.emit("chosen", Type(scalar, index.type.lanes), index, entries=entries)

    def lanes(self, type: Type) -> Value:
        """The vector 0, 1, 2, ..."""
        return self._pure("lanes", type)

    def op(self, op: str, *args: Value, **attrs: Any) -> Value:
        """Elementwise: fadd fsub fmul fdiv fmax fmin fneg fabs fsqrt floor round fma iadd ... .

        Sums and products of scalar integers must not overflow unless `wraps` is given; sdiv and
        srem truncate, and the divisor must be neither 0 nor -1.
        fmaximum and fminimum are NaN if either operand is; fmax and fmin, which are one
        instruction, take the second where either is NaN. What does not fit an i64 wraps, which
        indices are known not to do.
        """
        if args[0].type.scalar == "i64" and op in WRAPPING:
            attrs["wraps"] = True
        return self.emit(op, args[0].type, *args, **attrs)

    def test(self, predicate: str, left: Value, right: Value) -> Value:
        """Elementwise comparison; eq, lt, le; result has i1 elements."""
        return self.emit("cmp", left.type.of("i1"), left, right, predicate=predicate)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        return self.emit("select", yes.type, condition, yes, no)

    def convert(self, value: Value, scalar: str, unsigned: bool = False) -> Value:
        """Convert elements by value (floats round to nearest even; float to int truncates).

        Narrow floats go by way of f32, and floats to narrow integers by way of i32. What is too
        large for an integer becomes the nearest one, NaN 0.
        """
        if value.type.scalar == scalar:
            return value
        middle = _by_way_of(value.type.scalar, scalar)
        if middle:
            return self.convert(self.convert(value, middle, unsigned), scalar, unsigned)
        return self.emit("convert", value.type.of(scalar), value, unsigned=unsigned)

    def whole(self, value: Value, scalar: str) -> Value:
        """Floats to integers that are known to have them; anything for NaN."""
        return self.emit("convert", value.type.of(scalar), value, unsigned=False, inside=True)

    def bitcast(self, value: Value, type: Type) -> Value:
        return self.emit("bitcast", type, value)

    def splat(self, value: Value, lanes: int) -> Value:
        return self.emit("splat", Type(value.type.scalar, lanes), value)

    def fold(self, kind: str, value: Value) -> Value:
        """Combine all lanes: kind is sum, prod, max or min."""
        return self.emit("fold", Type(value.type.scalar), value, kind=kind)

    def interleave(self, values: Sequence[Value]) -> Value:
        """a0 b0 a1 b1 ... of two equal vectors."""
        type = values[0].type
        return self.emit("interleave", Type(type.scalar, 2 * type.lanes), *values)

    def intrinsic(self, row: Any, type: Type | None, *args: Any) -> Value:
        """Apply an instruction row (it carries its LLVM and its C spelling)."""
        return self.emit("intrinsic", type, *args, row=row)

    def call(self, name: str, type: Type | None, *args: Operand) -> Value:
        """Call an external function of the pool."""
        return self.emit("call", type, *args, callee=name)

    # -- control

    @contextmanager
    def loop(
        self,
        name: str,
        low: Index,
        high: Index,
        step: int,
        initial: Sequence[Operand] = (),
        runs: bool = True,
    ) -> Iterator[Loop]:
        """Open a loop; set `loop.block.yields` before leaving when values are carried."""
        variable = self.fresh(I64, name)
        types = [v.type if isinstance(v, Value) else I64 for v in initial]
        carried = tuple(self.fresh(t, "c") for t in types)
        results = tuple(self.fresh(t, "r") for t in types)
        loop = Loop(variable, low, high, step, tuple(initial), carried, results, runs)
        outer, self.block = self.block, loop.block
        self._cse.append({})
        yield loop
        self._cse.pop()
        self.block = outer
        self.block.body.append(loop)

    @contextmanager
    def branch(self, condition: Value) -> Iterator[Branch]:
        """Open an if; `otherwise(branch)` switches to the else part."""
        branch = Branch(condition)
        outer, self.block = self.block, branch.then
        self._cse.append({})
        yield branch
        self._cse.pop()
        self.block = outer
        branch.results = tuple(
            self.fresh(v.type if isinstance(v, Value) else I64) for v in branch.then.yields
        )
        self.block.body.append(branch)

    def otherwise(self, branch: Branch) -> None:
        """Continue in the else part of the open branch."""
        self.block = branch.other
        self._cse[-1] = {}
