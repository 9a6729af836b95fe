"""Emits the values of program nodes at points of a register tile, each once.

Knows the ops of the IR and how leaves are reached (`Access`); knows nothing of loops or schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np

from ir.dtypes import NARROW, compute_dtype, dtype_of, is_float, rounded, whole_range
from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Now, Prior
from ir.program import Program
from ir.ranges import lookup_inside, shifts_inside
from ir.scalar import running_bound, scalar_function
from ir.targets.cpu import integers
from ir.targets.cpu.access import Access, Position, Site
from ir.targets.cpu.bent import bent_dimensions, read_bent
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.lookup import look_up
from ir.targets.cpu.mathlib import EXP2_FOR, Arithmetic
from ir.targets.cpu.nest import Builder, Type, Value

SCALARS = {
    "bool": "i1", "u8": "i8", "u16": "i16", "u32": "i32", "u4": "i8", "i4": "i8", "i2": "i8",
    "tf32": "f32",
}  # fmt: skip


def scalar_of(dtype: str) -> str:
    """The nest scalar that holds values of a program dtype."""
    return SCALARS.get(dtype, dtype)


def accuracy(program: Program) -> str:
    """The dtype to which functions must be right: that of all outputs, if they agree."""
    dtypes = {spec.dtype for spec in program.outputs}
    return dtypes.pop() if len(dtypes) == 1 and is_float(min(dtypes)) else "f32"


def cast(b: Builder, value: Value, dtype: str, unsigned: bool) -> Value:
    """A value as `dtype` has it: a float becomes the nearest of an integer's numbers, any but 0 is
    true."""
    if dtype == "bool" and value.type.scalar != "i1":
        if value.type.is_float:
            value = b.convert(value, "f64" if value.type.scalar == "f64" else "f32")
        return b.test("ne", value, b.constant(0.0, value.type))
    if value.type.is_float and not is_float(dtype) and dtype not in ("i32", "i64"):
        low, high = whole_range(dtype)
        value = b.convert(value, "i64" if dtype == "u32" else "i32")
        least, most = (b.constant(each, value.type) for each in (low, high))
        value = b.op("imin", b.op("imax", value, least), most)
    elif dtype_of(dtype).per_byte > 1 and not is_float(dtype):
        value = _low_bits(b, b.convert(value, "i32", unsigned), dtype)
    return b.convert(value, scalar_of(dtype), unsigned)


def _low_bits(b: Builder, value: Value, dtype: str) -> Value:
    """The low bits of an i32, as a number of an integer type narrower than a byte."""
    row = dtype_of(dtype)
    if row.kind == "uint":
        return b.op("and", value, b.constant((1 << row.bits) - 1, value.type))
    rest = b.constant(32 - row.bits, value.type)
    return b.op("ashr", b.op("shl", value, rest), rest)


class Leaves(Protocol):
    """What the evaluator asks of the lowering."""

    def access(self, node: int) -> Access:
        """How to read a load's tensor or a materialised value."""
        ...

    def is_leaf(self, node: int) -> bool:
        """Whether `node` is read from memory here."""
        ...

    def looks_up(self, node: int) -> bool:
        """Whether `node` is read here at indices that tiles hold."""
        ...


class Evaluator:
    """Values at one site. `bound` holds values that are already in registers."""

    def __init__(
        self,
        builder: Builder,
        program: Program,
        leaves: Leaves,
        *,
        lane: str,
        row: str,
        lanes: int,
        fma: bool,
        scales: bool,
    ) -> None:
        self.b, self.program, self.leaves = builder, program, leaves
        self.lane, self.row, self.lanes = lane, row, lanes
        self.arith = Arithmetic(builder, fma, scales, accuracy(program))
        self.bound: dict[tuple[float, ...], Value] = {}
        self.memo: dict[tuple[float, ...], Value] = {}
        self.lines: dict[tuple[float, ...], Value] = {}
        self.site: dict[str, Position] = {}
        self.masks: Mapping[int, int] = {}
        self.inner = ""  # axis of the innermost loop

    def at(self, site: Site, masks: Mapping[int, int]) -> None:
        """Move to a new site; `masks[j]` > 0 says how many lanes of vector j are inside."""
        self.site = dict(site)
        self.masks = masks
        self.memo = {}

    def key(self, node: int, i: int, j: int) -> tuple[int, int, int]:
        axes = self.program.nodes[node].axes
        return node, i if self.row in axes else -1, j if self.lane in axes else -1

    def varies(self, node: int) -> bool:
        """Whether a node's value differs between lanes."""
        return self.lane in self.program.nodes[node].axes

    def value(self, node: int, i: int, j: int) -> Value:
        """Value of `node` in row i, vector j: a vector if it varies over lanes, else a scalar."""
        key = self.key(node, i, j)
        for table in (self.bound, self.memo):
            if key in table:
                return table[key]
        result = self._compute(node, i, j)
        self.memo[key] = result
        return result

    def vector(self, node: int, i: int, j: int, scalar: str) -> Value:
        """The value as a whole vector of `scalar`."""
        value = self.convert(self.value(node, i, j), scalar, self._unsigned(node))
        return value if value.type.lanes else self.b.splat(value, self.lanes)

    def convert(self, value: Value, scalar: str, unsigned: bool = False) -> Value:
        return self.b.convert(value, scalar, unsigned)

    def _unsigned(self, node: int) -> bool:
        return dtype_of(self.program.nodes[node].dtype).kind in ("uint", "bool")

    def _compute(self, node: int, i: int, j: int) -> Value:
        here = self.program.nodes[node]
        op = here.op
        if self.leaves.is_leaf(node):
            return self._read(node, i, j)
        if isinstance(op, Constant):
            return self._constant(op)
        if isinstance(op, Iota):
            return self.coordinate(op.axis, i, j)
        if isinstance(op, Cast):
            source = here.args[0]
            value = self.value(source, i, j)
            return cast(self.b, value, op.dtype, self._unsigned(source))
        if isinstance(op, Map):
            short = self._short_exp(node, i, j)
            return short or self._map(op, here.args, i, j)
        if isinstance(op, Now):
            carry = self.program.nodes[here.args[0]].op
            assert isinstance(carry, Carry)
            return self.running(carry.kind, self.value(here.args[0], i, j))
        raise Refusal("not-here", f"{op.name} (node {node}) cannot be evaluated inside a stage")

    def running(self, kind: str, state: Value) -> Value:
        """A state as others read it while it is carried."""
        bound = running_bound(kind, state.type.scalar)
        if bound is None:
            return state
        return self.b.op(f"f{bound[0]}", self.b.constant(bound[1], state.type), state)

    def _map(self, op: Map, args: tuple[int, ...], i: int, j: int) -> Value:
        nodes, function = self.program.nodes, op.function
        row = scalar_function(function)
        if function == "mul" and self._is_zero(args):
            return self.b.constant(0, Type("f32"))
        compute = op.operand([nodes[a].dtype for a in args])
        values = []
        for slot, arg in enumerate(args):
            value = self.value(arg, i, j)
            if row.operands == "bool":
                value = cast(self.b, value, "bool", False)
            elif row.result != "select" or slot > 0:
                value = self.convert(value, scalar_of(compute), self._unsigned(arg))
            values.append(value)
        if any(value.type.lanes for value in values):
            values = [v if v.type.lanes else self.b.splat(v, self.lanes) for v in values]
        if function == "bitcast":
            return self._bits(values[0], op.infer([nodes[args[0]].type], self.program.scope).dtype)
        if function == "lookup":
            assert op.dtype is not None
            scalar = scalar_of(compute_dtype(op.dtype))
            inside = lookup_inside(self.program, args[0], len(op.entries))
            return integers.lookup(self.b, values[0], op.entries, scalar, inside)
        if function in ("shl", "shr"):
            inside = shifts_inside(self.program, args[1], compute)
            return integers.shifted(self.b, function, values[0], values[1], inside)
        return apply_function(self.arith, function, values)

    def _bits(self, value: Value, dtype: str) -> Value:
        """The same bits as a value of `dtype`."""
        width = f"i{dtype_of(dtype).bits}"
        if not value.type.is_float:
            value = self.convert(value, width)
        return self.b.bitcast(value, value.type.of(scalar_of(dtype)))

    def _short_exp(self, node: int, i: int, j: int) -> Value | None:
        """exp(x - row) and exp(c x - row) for narrow outputs, in one operation less or two."""
        found = self._difference(node)
        if found is None:
            return None
        x, scale, less = found
        value = self.convert(self.value(x, i, j), "f32", self._unsigned(x))
        slope, shift = self._line(less, scale, i, j)
        if value.type.lanes and not slope.type.lanes:
            slope, shift = (self.b.splat(each, self.lanes) for each in (slope, shift))
        return self.arith.exp2(self.arith.fma(value, slope, shift))

    def _difference(self, node: int) -> tuple[int, float, int] | None:
        """(x, c, row) where a node is exp(c x - row) of a row's value that all of its x share.

        All such nodes are taken alike, whatever the lanes run along, so that their errors cancel.
        """
        here = self.program.nodes[node]
        if self.arith.accuracy not in EXP2_FOR or not self.arith.scales or here.op != Map("exp"):
            return None
        inner = self.program.nodes[here.args[0]]
        if inner.op != Map("sub") or inner.dtype != "f32" or self.leaves.is_leaf(here.args[0]):
            return None
        left, less = inner.args
        x, scale = self._unscaled(left)
        shared = set(self.program.nodes[less].axes) < set(self.program.nodes[left].axes)
        return (x, scale, less) if shared and self.program.nodes[less].dtype == "f32" else None

    def _line(self, less: int, scale: float, i: int, j: int) -> tuple[Value, Value]:
        """Slope and shift of a row's exponents, made once."""
        keys = [(*self.key(less, i, j), scale, which) for which in (0, 1)]
        for table in (self.lines, self.memo):
            if keys[0] in table:
                return table[keys[0]], table[keys[1]]
        found = self.arith.exponent_line(self.value(less, i, j), scale)
        self.memo |= dict(zip(keys, found, strict=True))
        return found

    @contextmanager
    def prepared(
        self, roots: Iterable[int], points: Iterable[tuple[int, int]], axis: str
    ) -> Iterator[None]:
        """Make what the exponents of `roots` have in common along `axis`, before a loop over it;
        what varies along loops inside that one is made there."""
        before, self.lines = self.lines, dict(self.lines)
        here = list(points)
        for x, scale, less in self._differences(roots):
            shared = self.program.nodes[less].axes
            if axis in shared or axis not in self.program.nodes[x].axes:
                continue
            if not {*shared} <= self.site.keys():
                continue
            for i, j in here:
                line = self._line(less, scale, i, j)
                for which, value in enumerate(line):
                    wide = self.varies(x) and not value.type.lanes
                    key = (*self.key(less, i, j), scale, which)
                    self.lines[key] = self.b.splat(value, self.lanes) if wide else value
        yield
        self.lines = before

    def _differences(self, roots: Iterable[int]) -> list[tuple[int, float, int]]:
        """Every exponent under `roots` that is taken in short."""
        found: list[tuple[int, float, int]] = []
        pending, seen = list(roots), set[int]()
        while pending:
            node = pending.pop()
            if node in seen or self.leaves.is_leaf(node):
                continue
            seen.add(node)
            difference = self._difference(node)
            found += [difference] if difference else []
            pending.extend(self.program.nodes[node].args)
        return found

    def _unscaled(self, node: int) -> tuple[int, float]:
        """(x, c) where a node is c x of a constant c > 0 and is not in memory, else (node, 1)."""
        here = self.program.nodes[node]
        if self.leaves.is_leaf(node) or here.op != Map("mul"):
            return node, 1.0
        for factor, other in (here.args, here.args[::-1]):
            op = self.program.nodes[factor].op
            if isinstance(op, Constant) and op.value > 0:
                return other, float(op.value)
        return node, 1.0

    def _is_zero(self, args: tuple[int, ...]) -> bool:
        """A coordinate (always finite) times the constant 0.0."""
        ops = [self.program.nodes[a].op for a in args]
        zero = any(isinstance(op, Constant) and op.value == 0 and op.dtype == "f32" for op in ops)
        return zero and any(isinstance(op, Iota) for op in ops)

    def _constant(self, op: Constant) -> Value:
        """Narrow floats as the f32 of the same value: what is stored is converted again."""
        if op.dtype in NARROW:
            value = float(rounded(np.array([op.value]), op.dtype)[0])
            return self.b.constant(value, Type("f32"))
        return self.b.constant(op.value, Type(scalar_of(op.dtype)))

    def first(self, axis: str, i: int, j: int) -> Value:
        """Where on `axis` the first lane of row i, vector j is."""
        position = self.site[axis]
        inner = position.inner
        if axis == self.row:
            inner += i
        if axis == self.lane:
            inner += j * self.lanes
        origin = self.b.add(position.origin, inner)
        if isinstance(origin, int):
            return self.b.constant(origin, Type("i32"))
        return self.b.convert(origin, "i32")

    def coordinate(self, axis: str, i: int, j: int) -> Value:
        """Where on `axis` row i, vector j is: a vector on the axis of the lanes."""
        scalar = self.first(axis, i, j)
        if axis != self.lane:
            return scalar
        lanes = self.b.lanes(Type("i32", self.lanes))
        return self.b.op("iadd", self.b.splat(scalar, self.lanes), lanes)

    def place(self, i: int, j: int) -> Site:
        """The site of row i, vector j."""
        site = dict(self.site)
        if self.row in site:
            here = site[self.row]
            site[self.row] = Position(here.origin, here.inner + i)
        if self.lane in site:
            here = site[self.lane]
            site[self.lane] = Position(here.origin, here.inner + j * self.lanes)
        return site

    def _read(self, node: int, i: int, j: int) -> Value:
        access = self.leaves.access(node)
        op = self.program.nodes[node].op
        if isinstance(op, Load) and self.leaves.looks_up(node):
            looked_up = partial(look_up, self, node, op, access, (i, j))
            bent = bent_dimensions(self, node, op)
            return read_bent(self, op, access, (i, j), bent, looked_up) if bent else looked_up()
        pointer, at = access.pointer(self.b, self.place(i, j), self.inner)
        value = self.neighbours(access, pointer, at, j)
        if self.program.nodes[node].dtype == "bool":
            return self.b.test("ne", value, self.b.constant(0, value.type))
        return value

    def neighbours(
        self, access: Access, pointer: Value, at: int, j: int, stride: int | None = None
    ) -> Value:
        """What the lanes of vector j read from where the first of them is; one scalar where all
        read the same. `stride`: bytes from one to the next, if that is not the tensor's own."""
        scalar = "i8" if access.scalar == "i1" else access.scalar
        stride, mask = access.stride(self.lane) if stride is None else stride, self.masks.get(j, 0)
        type = Type(scalar, self.lanes)
        if stride == 0:
            return self.b.load(Type(scalar), pointer, at)
        if stride == type.bytes // type.lanes:
            return self.b.load(type, pointer, at, 0 if access.padded else mask)
        return self.b.gather(type, pointer, stride, at, mask)

    def active(self, j: int) -> int:
        """How many lanes of vector j are inside; 0: all of them."""
        return self.masks.get(j, 0)

    def prior(self, node: int) -> bool:
        return isinstance(self.program.nodes[node].op, Prior)
