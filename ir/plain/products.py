"""Sums of a shared loop that are products of matrices, as matrix units take them. Knows no target.

A sum over `depth` of what rows have times what columns have: some variables of the loop belong to
the one factor, others to the other, and those of both are of products side by side. All values of
both factors are numbers of one narrow type, in which a matrix unit multiplies exactly, or a factor
is the sum of several such numbers, whose products below the last bit are left out (factors are
taken to be finite).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ir.narrow_parts import LONGEST, PART, WIDEST, pairs_of
from ir.plain.accesses import every
from ir.plain.code import (
    GROUP,
    Array,
    Assign,
    Call,
    Convert,
    Element,
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
from ir.plain.jammed import can_jam
from ir.plain.scalars import rebuilt
from ir.plain.sums import names_of

Variables = tuple[tuple[Name, int], ...]
_UNITS = ("bf16", "f16")  # types that matrix units multiply, with sums in f32
_EXACT = {
    "bf16": {"bf16"},
    "f16": {"f16"},
    "e4m3": {"bf16", "f16"},
    "e5m2": {"bf16", "f16"},
}  # in which of them values of a stored type are the same
_LEAST = 16  # elements of a sum, below which it is no product
_LEAST_POINTS = 64  # the same of a product's result


@dataclass(frozen=True, slots=True)
class Product:
    """What is added to `sum`: over `depth`, `left` (of rows) times `right` (of columns), each of so
    many `parts` of a type."""

    sum: Name
    depth: Name
    extent: int
    left: Scalar
    right: Scalar
    dtype: str
    parts: tuple[int, int] = (1, 1)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Which parts of both factors are multiplied."""
        return pairs_of(self.parts)


@dataclass(frozen=True, slots=True)
class Products:
    """The products of one shared loop, and what it does `behind` them at each of its points."""

    batch: Variables
    rows: Variables
    columns: Variables
    products: tuple[Product, ...]
    behind: tuple[Statement, ...]

    @property
    def sides(self) -> tuple[int, int, int]:
        """How many products side by side, rows and columns."""
        batch, rows, columns = (
            prod(extent for _, extent in side) for side in (self.batch, self.rows, self.columns)
        )
        return batch, rows, columns


def products_of(kernel: PlainKernel, spread: Spread) -> Products | None:
    """The products of a loop, whose rows are no fewer than its columns; None if it has none, or
    sums that are none."""
    if not can_jam(spread):
        return None
    dtypes = {array.name: array.dtype for array in kernel.arrays}
    zeros = {s.name.name for s in spread.body if isinstance(s, Let) and _is_zero(s.value)}
    lets: dict[Scalar, Scalar] = {}
    products, behind = list[Product](), list[Statement]()
    for s in spread.body:
        if isinstance(s, Loop):
            found = _product(s, lets, zeros, dtypes)
            if found is None:
                return None
            products.append(found)
            continue
        if isinstance(s, Let):
            lets[s.name] = rebuilt(s.value, lets.get)
        behind.append(s)
    sums = {product.sum.name for product in products}
    behind = [s for s in behind if not (isinstance(s, Let) and s.name.name in sums)]
    others = [s for s in every(behind) if isinstance(s, Assign) and s.name.name in sums]
    if not products or others or len(sums) < len(products):
        return None
    return _sided(spread, products, behind)


def narrowed(kernel: PlainKernel) -> PlainKernel:
    """The kernel whose groups' arrays are of the narrow type to which all that is written in them
    is rounded: nothing else changes."""
    lets = {s.name.name: s.value for s in every(kernel.body) if isinstance(s, Let)}
    found: dict[str, set[str]] = {}
    for s in every(kernel.body):
        if isinstance(s, Write):
            value = s.value
            while isinstance(value, Name) and value.name in lets:
                value = lets[value.name]
            kinds = found.setdefault(s.array, set())
            if not (isinstance(value, Number) and _exact(value, {})):  # which all types have
                kinds.add(value.to if isinstance(value, Convert) else "")
    arrays = [
        replace(array, dtype=min(found[array.name])) if _narrows(array, found) else array
        for array in kernel.arrays
    ]
    return replace(kernel, arrays=tuple(arrays))


def _narrows(array: Array, found: Mapping[str, set[str]]) -> bool:
    to = found.get(array.name, set())
    return array.place == GROUP and array.dtype == "f32" and len(to) == 1 and to <= {*_UNITS}


def _is_zero(value: Scalar) -> bool:
    return isinstance(value, Number) and value.value == 0 and value.dtype == "f32"


def _product(
    loop: Loop, lets: Mapping[Scalar, Scalar], zeros: set[str], dtypes: Mapping[str, str]
) -> Product | None:
    """What a loop adds up, if that is all it does, and begins with nothing."""
    inside, adds = dict(lets), list[Assign]()
    for s in loop.body:
        if isinstance(s, Let):
            inside[s.name] = rebuilt(s.value, inside.get)
        elif isinstance(s, Assign):
            adds.append(s)
        else:
            return None
    if len(adds) != 1 or adds[0].name.name not in zeros or loop.extent < _LEAST:
        return None
    factors = _factors(adds[0])
    if factors is None:
        return None
    left, right = (rebuilt(factor, inside.get) for factor in factors)
    if adds[0].name.name in {*names_of(left), *names_of(right)}:
        return None
    own = adds[0].name, loop.variable, loop.extent, left, right
    exact = [_exact(factor, dtypes) for factor in (left, right)]
    for kind in _UNITS:
        if all(kind in kinds for kinds in exact):
            return Product(*own, kind)
    if loop.extent > LONGEST:
        return None
    counts = [1 if PART in kinds else WIDEST for kinds in exact]
    return Product(*own, PART, (counts[0], counts[1]))


def _factors(s: Assign) -> tuple[Scalar, Scalar] | None:
    """The factors of what is added to a variable."""
    value = s.value
    if not isinstance(value, Call) or value.function != "add" or value.args[0] != s.name:
        return None
    term = value.args[1]
    if not isinstance(term, Call) or term.function != "mul" or term.dtype != "f32":
        return None
    return term.args[0], term.args[1]


def _exact(scalar: Scalar, dtypes: Mapping[str, str]) -> set[str]:
    """Types of matrix units in which all that a scalar may be is the same."""
    match scalar:
        case Element():
            return _EXACT.get(dtypes[scalar.array], set())
        case Convert():
            return _EXACT.get(scalar.to, set())
        case Number():
            return {*_UNITS} if scalar.value in (-1.0, 0.0, 1.0) else set()
        case Call() if scalar.function in ("where", "max", "min", "neg"):
            args = scalar.args[1:] if scalar.function == "where" else scalar.args
            return {*_UNITS}.intersection(*(_exact(arg, dtypes) for arg in args))
    return set()


def _sided(
    spread: Spread, products: Sequence[Product], behind: Sequence[Statement]
) -> Products | None:
    """Which variables are rows and which columns, the same for all products of a loop."""
    extents = {name.name: (name, extent) for name, extent in spread.variables}
    uses = [
        tuple({*names_of(side)} & set(extents) for side in (product.left, product.right))
        for product in products
    ]
    batch = set.intersection(*(left & right for left, right in uses))
    rows, columns = uses[0][0] - batch, uses[0][1] - batch
    columns |= set(extents) - rows - batch
    turned = [False]
    for left, right in uses[1:]:
        straight = left - batch <= rows and right - batch <= columns
        if not straight and not (right - batch <= rows and left - batch <= columns):
            return None
        turned.append(not straight)
    if rows & columns:
        return None
    sizes = [prod(extents[name][1] for name in side) for side in (rows, columns)]
    if min(sizes) == 1 or prod(sizes) < _LEAST_POINTS:
        return None
    if sizes[0] < sizes[1]:
        rows, columns, turned = columns, rows, [not turn for turn in turned]
    ordered = [
        tuple(extents[name.name] for name, _ in spread.variables if name.name in side)
        for side in (batch, rows, columns)
    ]
    placed = tuple(
        replace(p, left=p.right, right=p.left, parts=p.parts[::-1]) if turn else p
        for p, turn in zip(products, turned, strict=True)
    )
    return Products(ordered[0], ordered[1], ordered[2], placed, tuple(behind))
