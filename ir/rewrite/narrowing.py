"""Products of wide numbers as products of narrow ones, which tensor cores compute.

A number of 24 bits is the sum of three of 8 bits, a product of two bf16 that of two: both exactly.
A product of such sums is the sum of the products of their parts; those too small to change the last
bit are left out. Parts lie along an axis of their own, over which the products are summed as well.
A factor that has 8 bits to begin with is one part: that of signs, of small whole numbers, of what
was widened (Henry, Tang and Heinecke, 2019, for bf16; Ootomo and Yokota, 2022, for the errors).

Parts of what is made of sums (the weights of attention), or of one factor beside a narrow one, may
be products of their own instead: the kernel that has such a factor in registers multiplies one part
after the other.

Factors are taken to be finite, as values behind masks are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ir.axes import Axis
from ir.builder import Graph, cast, contract, where
from ir.dtypes import TOGETHER, dtype_of, holding, holds, is_float, rounded, whole_range
from ir.errors import UsageError
from ir.functions import bitcast
from ir.narrow_parts import LONGEST, PART, STEPWISE, pairs_of
from ir.ops.base import volume
from ir.ops.map import Cast, Constant, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract
from ir.program import Node, Program
from ir.rewrite.cutting import fresh
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.parting import parted
from ir.rewrite.spans import Span, spans_of
from ir.tiles import Tile, apply

NAME = "narrow-parts"
WHY = "a wide factor is the sum of narrow ones, and a product of sums that of all their products"
ROUNDING = "products of parts below the last bit are left out"
BITS = 8  # what a part holds
UNIT = 64  # points that parts of a long sum are multiples of
WIDE = "f32"
LARGEST = 3.3895e38  # of the parts' type
CHOICES = ("max", "min", "neg", "abs", "where")  # functions that give one of their numbers

NARROW = ("bf16", "f16")  # that products of unlike narrow factors are computed in
BYTES = ("i8", "u8")  # the types of whole numbers that are multiplied into 32 bits

Pairs = tuple[tuple[int, int], ...]
_Factors = tuple[tuple[str, ...], tuple[int, ...]]  # of a product: their types, and the nodes


@dataclass(frozen=True, slots=True)
class _Split:
    """A product, how many parts its factors have, and which of them are multiplied."""

    position: int
    counts: tuple[int, int]

    @property
    def pairs(self) -> Pairs:
        return pairs_of(self.counts)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A program of narrow products, where the first of them was, and the bytes that parts are,
    written once and read once."""

    program: Program
    node: int
    bytes: int


def narrowed(program: Program, apart: bool = False) -> Narrowed | None:
    """The program with its wide products of matrices as products of narrow parts; None if it has
    none. `apart`: parts of one factor alone, and of one that is made of sums, are products of their
    own. Sums that are too long for tensor cores are sums of shorter ones."""
    program = shortened(program)
    splits = {s.position: s for n in range(len(program.nodes)) for s in _split(program, n)}
    beside = {p for p, split in splits.items() if apart and _is_beside(program, split)}
    if not splits or (apart and not beside):
        return None
    names, taken = dict[int, str](), set(program.axes)
    along = [split for position, split in splits.items() if position not in beside]
    for count in sorted({len(split.pairs) for split in along} - {1}):
        names[count] = fresh("parts", taken)
        taken.add(names[count])
    extents = dict(program.axes) | {name: count for count, name in names.items()}
    graph = graft(program, extents=extents)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        if position in splits:
            args = [made[factor] for factor in _factors(program, splits[position])]
            product = _products if position in beside else _product
            made.append(product(graph, program, splits[position], args, names))
        else:
            args = [made[arg] for arg in node.args]
            made.append(copy_node(graph, program, position, args))
    parts = {
        (arg, len(split.pairs) if count > 1 else 1)
        for position, split in splits.items()
        if position not in beside
        for arg, count in zip(program.nodes[position].args, split.counts, strict=True)
    }
    points = sum(volume(program.scope, program.nodes[arg].axes) * count for arg, count in parts)
    return Narrowed(graph.program(), min(splits), 2 * points * dtype_of(PART).bytes)


def shortened(program: Program) -> Program:
    """The program with sums of wide products that are longer than `LONGEST` as sums of parts that
    are not, each by itself; as it is where it has none, or such as are not to be parted."""
    for node in program.nodes:
        if not isinstance(node.op, Contract) or not _is_wide(program, node):
            continue
        points = volume(program.scope, node.op.over)
        axis = max(node.op.over, key=lambda name: program.axes[name])
        parts = -(-points // LONGEST)
        if parts > 1 and parts * UNIT <= program.axes[axis]:
            with suppress(UsageError):  # an axis that is stored, or summed in turn
                return shortened(parted(program, axis, parts, UNIT))
    return program


def _factors(program: Program, split: _Split) -> Iterator[int]:
    """The factors of a product; one of a single part as it was before it was widened."""
    kinds = _kinds(program)
    for factor, count in zip(program.nodes[split.position].args, split.counts, strict=True):
        before = _before_cast(program, factor, kinds)
        narrow = count == 1 and program.nodes[before].dtype == PART
        yield before if narrow else factor


def unwidened(program: Program) -> Program:
    """The program with products of factors as they were before casts that change no number, or cast
    back to what all their numbers are of, where both are of one narrow type then: floats of one
    type, whole numbers of a byte each."""
    kinds = _kinds(program)
    plain = {n: found for n in range(len(program.nodes)) if (found := _narrow(program, n, kinds))}
    plain |= _in_bytes(program)
    if not plain:
        return program
    graph, made = graft(program), list[Tile]()
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if position in plain:
            dtypes, factors = plain[position]
            args = [cast(made[n], dtype) for n, dtype in zip(factors, dtypes, strict=True)]
        made.append(copy_node(graph, program, position, args))
    return graph.program()


def _in_bytes(program: Program) -> dict[int, _Factors]:
    """Products of whole numbers in 32 bits of which both factors have room in bytes."""
    whole = [
        position
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Contract) and node.dtype == "i32"
        and any(program.nodes[arg].dtype not in BYTES for arg in node.args)
    ]  # fmt: skip
    spans = spans_of(program) if whole else ()
    found: dict[int, _Factors] = {}
    for position in whole:
        factors = tuple(_before_widening(program, arg) for arg in program.nodes[position].args)
        dtypes = tuple(_byte(program.nodes[one].dtype, spans[one]) for one in factors)
        if all(dtypes):
            found[position] = dtypes, factors
    return found


def _before_widening(program: Program, position: int) -> int:
    """A whole number before casts to types of more numbers."""
    node = program.nodes[position]
    if isinstance(node.op, Cast):
        source = program.nodes[node.args[0]].dtype
        if source != "bool" and not is_float(source):
            (least, most), (low, high) = map(whole_range, (source, node.dtype))
            if low <= least and most <= high:
                return _before_widening(program, node.args[0])
    return position


def _byte(dtype: str, span: Span) -> str:
    """The type of a byte that has all numbers of a span; none if none has."""
    if dtype in BYTES:
        return dtype
    fits = (one for one in BYTES if whole_range(one)[0] <= span.least
            and span.most <= whole_range(one)[1])  # fmt: skip
    return next(fits, "") if span.known and not span.hole else ""


def _narrow(program: Program, position: int, kinds: Sequence[_Kind | None]) -> _Factors | None:
    """The narrow type that has the numbers of both factors of a product, or types that are
    multiplied together, and the factors before casts; None if they stay."""
    node = program.nodes[position]
    if not isinstance(node.op, Contract) or node.dtype != WIDE:
        return None
    found = tuple(_before_cast(program, arg, kinds) for arg in node.args)
    types = _types(*(kinds[factor] for factor in found))
    if "" in types:
        return None
    if len(set(types)) == 1 and is_float(types[0]):
        wanted = (types[0], types[0])
    elif set(types) in TOGETHER and is_float(types[0]):
        wanted = (types[0], types[1])
    else:
        wide = holding(types, NARROW)
        wanted = (wide, wide)
    same = all(
        program.nodes[arg].dtype == dtype
        and (arg == factor or program.nodes[factor].dtype != dtype)
        for arg, factor, dtype in zip(node.args, found, wanted, strict=True)
    )
    return None if same or not wanted[0] else (wanted, found)


def _types(left: _Kind | None, right: _Kind | None) -> tuple[str, str]:
    """The types of two factors; of constants alone (signs) the other's, if it has them."""
    if left is None or right is None:
        return "", ""
    both = left.beside(right) if "" in (left.dtype, right.dtype) else None
    dtype = "" if both is None else both.dtype
    return left.dtype or dtype, right.dtype or dtype


@dataclass(frozen=True, slots=True)
class _Kind:
    """The narrow type that has all numbers of a value; of constants none yet, but the numbers."""

    dtype: str
    numbers: frozenset[float] = frozenset()

    def beside(self, other: _Kind) -> _Kind | None:
        """Of numbers of either."""
        dtype, numbers = self.dtype or other.dtype, self.numbers | other.numbers
        if {self.dtype, other.dtype} - {"", dtype}:
            return None
        if dtype and any(not _is_of(number, dtype) for number in numbers):
            return None
        return _Kind(dtype, frozenset() if dtype else numbers)


def _is_of(number: float, dtype: str) -> bool:
    with np.errstate(over="ignore"):
        return bool(rounded(np.array([number]), dtype)[0] == number)


def _kinds(program: Program) -> list[_Kind | None]:
    """The narrow types of values that are made of numbers of such a type and choose among them."""
    found: list[_Kind | None] = []
    for node in program.nodes:
        kind = _Kind(node.dtype) if _is_narrow(node.dtype) else None
        op, values = node.op, [found[arg] for arg in node.args]
        if isinstance(op, Constant) and is_float(node.dtype):
            kind = _Kind("", frozenset((float(op.value),)))
        elif kind is None and isinstance(op, Cast) and is_float(node.dtype):
            (kind,) = values
            kind = kind if kind is not None and kind.dtype else None
        elif kind is None and isinstance(op, Read):
            kind = values[0]
            if kind is not None and op.fill is not None:
                kind = kind.beside(_Kind("", frozenset((op.fill,))))
        elif kind is None and isinstance(op, Map) and op.function in CHOICES:
            kind, *others = values[1:] if op.function == "where" else values
            for other in others:
                kind = kind.beside(other) if kind is not None and other is not None else None
            if op.function == "neg" and kind is not None and kind.dtype == "e8m0":
                kind = None  # of one sign
        found.append(kind)
    return found


def _is_narrow(dtype: str) -> bool:
    return dtype != "bool" and dtype_of(dtype).bits <= (2 * BITS if is_float(dtype) else BITS)


def _before_cast(program: Program, position: int, kinds: Sequence[_Kind | None]) -> int:
    """A value before casts that change no number of it: to a type that holds its own, or that of
    which they all are."""
    node = program.nodes[position]
    if isinstance(node.op, Cast) and is_float(node.dtype):
        source, kind = program.nodes[node.args[0]].dtype, kinds[node.args[0]]
        own = kind is not None and kind.dtype == node.dtype
        if source != "bool" and (own or holds(node.dtype, source)):
            return _before_cast(program, node.args[0], kinds)
    return position


def _split(program: Program, position: int) -> list[_Split]:
    """How a product may be split, if it is one of matrices whose factors are wide."""
    node = program.nodes[position]
    if not isinstance(node.op, Contract) or not _is_wide(program, node):
        return []
    if volume(program.scope, node.op.over) > LONGEST:
        return []
    counts = [-(-bits_of(program, arg) // BITS) for arg in node.args]
    return [_Split(position, (counts[0], counts[1]))]


def _is_wide(program: Program, node: Node) -> bool:
    """Whether a contraction is a product of matrices with a factor that has parts."""
    if node.dtype != WIDE:
        return False
    left, right = (program.nodes[arg] for arg in node.args)
    if not set(left.axes) - set(right.axes) or not set(right.axes) - set(left.axes):
        return False
    types = {left.dtype, right.dtype}
    if types == {PART} or any(not is_float(dtype) or dtype == "f64" for dtype in types):
        return False
    return "tf32" not in types and (len(types) == 2 or WIDE in types)


def bits_of(program: Program, position: int) -> int:
    """Bits that a number of f32, or of a narrower type, has at most."""
    node = program.nodes[position]
    own = dtype_of(node.dtype).mantissa + 1
    if isinstance(node.op, Constant):
        return min(own, _bits(float(node.op.value)))
    if isinstance(node.op, Cast) and is_float(program.nodes[node.args[0]].dtype):
        return min(own, bits_of(program, node.args[0]))
    if isinstance(node.op, Map) and node.op.function == "mul" and is_float(node.dtype):
        fewer, more = sorted(bits_of(program, arg) for arg in node.args)
        return min(own, more if fewer == 1 else fewer + more)
    if isinstance(node.op, Map) and node.op.function in ("neg", "abs"):
        return min(own, bits_of(program, node.args[0]))
    if isinstance(node.op, Map) and node.op.function == "where":
        return min(own, max(bits_of(program, arg) for arg in node.args[1:]))
    return own


def _bits(value: float) -> int:
    """Of a number's digits between the first and the last that is 1."""
    if value == 0 or not math.isfinite(value):
        return 1
    whole = abs(math.frexp(value)[0])
    return next(bits for bits in range(1, 54) if (whole * 2**bits).is_integer())


def _product(
    graph: Graph, program: Program, split: _Split, args: Sequence[Tile], names: dict[int, str]
) -> Tile:
    node, pairs = program.nodes[split.position], split.pairs
    assert isinstance(node.op, Contract)
    over = node.op.over
    parts = None
    if len(pairs) > 1:
        parts = Axis(names[len(pairs)], len(pairs))
        over = (parts.name, *over)
    factors = [
        _factor(arg, count, [pair[side] for pair in pairs], parts)
        for side, (arg, count) in enumerate(zip(args, split.counts, strict=True))
    ]
    axes = tuple(Axis(name, graph.extents[name]) for name in over)
    return contract(factors[0], factors[1], axes, node.dtype)


def _is_beside(program: Program, split: _Split) -> bool:
    """Whether parts are products beside each other: of one factor alone, or of one that is made of
    products."""
    op = program.nodes[split.position].op
    assert isinstance(op, Contract)
    if min(split.counts) == 1 < max(split.counts) and volume(program.scope, op.over) <= STEPWISE:
        return True
    wide = [
        arg for arg, count in zip(program.nodes[split.position].args, split.counts, strict=True)
        if count > 1
    ]  # fmt: skip
    behind = program.behind(wide, lambda p: isinstance(program.nodes[p].op, Contract))
    return any(isinstance(program.nodes[p].op, Contract) for p in behind)


def _products(
    graph: Graph, program: Program, split: _Split, args: Sequence[Tile], names: dict[int, str]
) -> Tile:
    """The product as the sum of those of pairs of parts, the least first."""
    node = program.nodes[split.position]
    assert isinstance(node.op, Contract)
    axes = tuple(Axis(name, graph.extents[name]) for name in node.op.over)
    exact = min(split.counts) == 1  # all pairs are multiplied
    left, right = (_parts(arg, count, exact) for arg, count in zip(args, split.counts, strict=True))
    first, *others = (contract(left[i], right[j], axes, node.dtype) for i, j in split.pairs)
    for other in others:
        first = first + other
    return first


def _parts(tile: Tile, count: int, cut: bool) -> list[Tile]:
    """The parts of a factor: the nearest numbers, or (`cut`) bits as they are."""
    if count == 1:
        return [cast(tile, PART)]
    found, rest = [], cast(tile, WIDE)
    for _ in range(1, count):
        last = bitcast(bitcast(rest, "i32") & -0x10000, WIDE) if cut else _rounded(rest)
        rest = rest - last if cut else where(apply("abs", last) <= LARGEST, rest - last, 0.0)
        found.append(last)
    return [cast(part, PART) for part in (*found, rest)]


def _factor(tile: Tile, count: int, places: Sequence[int], parts: Axis | None) -> Tile:
    """The parts of a factor, along the axis of parts where they differ."""
    found = _parts(tile, count, cut=False)
    if count == 1:
        return found[0]
    assert parts is not None
    chosen = found[places[-1]]
    here = tile.graph.iota(parts)
    for number in range(len(places) - 2, -1, -1):
        chosen = where(apply("eq", here, number), found[places[number]], chosen)
    return cast(chosen, PART)


def _rounded(tile: Tile) -> Tile:
    """The nearest numbers of 8 bits, by their patterns: the cast of a number may wait, these may
    not. A NaN may become a number, with which the rest is NaN."""
    pattern = bitcast(tile, "i32")
    odd = (pattern >> 16) & 1
    return bitcast((pattern + odd + 0x7FFF) & -0x10000, WIDE)
