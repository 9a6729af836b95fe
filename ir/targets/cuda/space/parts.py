"""Residences in parts: long reductions end in memory for each part of an axis, and are merged.

A chain of reductions along one axis (a maximum and the sum of exponentials behind it, a mean and
the variance around it) is one pass over each part, by blocks of its own; so are reductions across
the columns of products, and those along several axes at once (pairs of points). Where outputs go
along the axis too (a softmax of few long rows, a normalisation along columns), what is reduced is
found first, and the rest reads it; where nothing of these is made of what is reduced (gradients of
rows, and of their weights), one kernel has both for each part, and reads what both are made of
once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from math import prod

from ir.dtypes import dtype_of
from ir.errors import ProgramError, UsageError
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.domain import live_range
from ir.rewrite.joining import joined_axes
from ir.rewrite.parting import cut, nested, parted
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.boundaries import boundary_of
from ir.targets.cuda.build.cut import parted_at, stored_at
from ir.targets.cuda.build.orders import is_for_tensor_cores
from ir.targets.cuda.build.products import (
    depends_on_reduction,
    largest_load,
    product_of,
    volume,
)
from ir.targets.cuda.build.role_rules import WIDEST
from ir.targets.cuda.layouts.access import load_access

SHORTEST = 128  # points of a part
UNIT = 64  # of points that parts have whole ones of where no equal parts are as many as wished
BLOCK = 64  # rows of a product that one block has at least
CLOSE = 1.1  # times the parts that are wished, which are as good
HELD = 16 << 10  # elements that a block has in registers
LINE = 128  # bytes that lie together: a block does not share them with another


def counts_of(phase: Program, processors: int) -> list[int]:
    """In as many parts as give every processor a block, in half and in twice as many, more where
    they are uneven: what parts leave for each other may be more than what there is to read. And in
    as many as registers of a block hold one of, which is then read once and in one go."""
    axis = _parted_axis(phase)
    if axis is None:
        return []
    counts: list[int] = []
    wanted = -(-processors // _blocks(phase, axis))
    if axis in (_chained(phase), _several(phase), _behind(phase)) and wanted > 1:
        fewest = 1 << (wanted - 1).bit_length()
        wished = [fewest // 2, fewest, 2 * fewest]
        wished += [4 * fewest] if _uneven(phase, axis) else [_held(phase, axis)]
        extent = phase.axes[axis]
        counts = [near for count in wished if count > 1 for near in _near(extent, count)]
    if axis == _across(phase):
        counts += _whole_parts(phase.axes[axis])
    statistics = _statistics(phase, axis)
    whole = statistics[0] if statistics else phase
    return [parts for parts in dict.fromkeys(counts) if _parts(whole, axis, parts)]


def in_parts(program: Program, parts: int, taken: frozenset[str]) -> tuple[Program, ...]:
    """A kernel of every part and one that merges them; the program where it has no such parts.
    Tensors between them have names that are not `taken`."""
    axis = _parted_axis(program)
    if axis is None:
        return (program,)
    statistics = _statistics(program, axis, taken)
    if statistics:
        first, rest = statistics
        names = taken | frozenset(spec.name for part in statistics for spec in part.tensors)
        found = in_parts(first, parts, names)
        if len(found) == 1:
            return (program,)
        names |= frozenset(spec.name for part in found for spec in part.tensors)
        return (*found, *in_parts_beside(rest, parts, names))
    made = _parts(program, axis, parts)
    if made is None:
        return (program,)
    inner = {n for n in reductions_of(made) if f"{axis}_in" in reduced_axes(made.nodes[n])}
    first, merge = parted_at(made, inner, taken)
    beside = {*_beside_products(first), *_repeated_products(first, axis)}
    if not beside:
        return first, merge
    taken |= {spec.name for part in (first, merge) for spec in part.tensors}
    return (*stored_at(first, beside, taken), merge)


def counts_beside(phase: Program, processors: int) -> list[int]:
    """The same for outputs along an axis and what is reduced along it, beside each other; where
    both are made of products, as many as tiles of these hold one of."""
    axis = _beside_axis(phase)
    if axis is None:
        return []
    over = {n: {*reduced_axes(phase.nodes[n])} for n in reductions_of(phase)}
    kept = {a for n, axes in over.items() if axis in axes for a in phase.nodes[n].axes}
    whole = any(axes & kept for axes in over.values() if axis not in axes)  # rows of a block's own
    wanted = -(-processors // (1 if whole else _blocks(phase, axis)))
    fewest = 1 << (wanted - 1).bit_length()
    wished = (fewest // 2, fewest, 2 * fewest, 4 * fewest) if wanted > 1 else ()
    counts = dict.fromkeys(_divisor(phase.axes[axis], count) for count in wished)
    if any(axis in phase.nodes[n].axes for n in over if is_for_tensor_cores(phase, n)):
        counts = dict.fromkeys(_whole_parts(phase.axes[axis]))
    none = frozenset[str]()
    return [parts for parts in counts if parts > 1 and in_parts_beside(phase, parts, none)[1:]]


def in_parts_beside(program: Program, parts: int, taken: frozenset[str]) -> tuple[Program, ...]:
    """A kernel that has outputs along an axis and, for each part of it, what is reduced, and one
    that merges; the program where it has no such parts."""
    axis = _beside_axis(program)
    if axis is None or program.axes[axis] % parts:
        return (program,)
    with suppress(ProgramError):
        made = nested(cut(program, axis, parts), f"{axis}_part")
        inner = {n for n in reductions_of(made) if f"{axis}_in" in reduced_axes(made.nodes[n])}
        return parted_at(made, inner, taken, beside=True)
    return (program,)


def reductions_of(program: Program) -> Iterator[int]:
    """Where a program reduces, products included."""
    return (position for position, node in enumerate(program.nodes) if is_reduction(node))


def is_output(program: Program, position: int) -> bool:
    """Whether nothing reads a value but what stores it."""
    return all(isinstance(program.nodes[user].op, Store) for user in program.users(position))


def _longest(program: Program, axes: Collection[str]) -> str | None:
    """The longest of some axes; of those as long the program's first, in every process the same."""
    own = (axis for axis in program.axes if axis in axes)
    return max(own, key=lambda axis: program.axes[axis], default=None)


def _near(extent: int, wished: int) -> tuple[int, ...]:
    """The divisor of an extent that is near what is wished, and where that is not close, so many
    parts of whole units as have all of it, the last one shorter: whatever the extent, there are
    about as many parts as wished."""
    found = _divisor(extent, wished)
    length = -(-extent // (wished * UNIT)) * UNIT
    whole = -(-extent // length)
    if 2 * found < wished or found > 2 * wished:
        return (whole,)
    close = wished <= found <= CLOSE * wished and extent // found >= SHORTEST
    return (found,) if close else (found, whole)


def _divisor(extent: int, wished: int) -> int:
    """The least divisor of an extent from `wished` up to twice that, else the largest below."""
    near = (n for n in range(wished, 2 * wished) if extent % n == 0)
    below = (n for n in range(wished, 0, -1) if extent % n == 0)
    return next(near, next(below))


def _repeated_products(program: Program, axis: str) -> Iterator[int]:
    """Where products for tensor cores end that factors of others are made of, and that more points
    of those would compute again than a block has beside each other: each part of the axis, or, of a
    product whose columns it is, each tile. What is summed along it (scores) stays in its chain."""
    for position in reductions_of(program):
        product = product_of(program, position) if is_for_tensor_cores(program, position) else None
        own = {*program.nodes[position].axes}
        for factor in (product.a, product.b) if product else ():
            for source in depends_on_reduction(program, factor):
                lacks = own - {*program.nodes[source].axes}
                again = f"{axis}_in" in own or f"{axis}_part" in lacks
                many = volume(program, tuple(lacks)) > WIDEST
                if again and many and is_for_tensor_cores(program, source):
                    yield boundary_of(program, source)


@lru_cache(maxsize=256)
def _statistics(
    program: Program, axis: str, taken: frozenset[str] = frozenset()
) -> tuple[Program, Program] | None:
    """What is reduced along an axis that outputs have too, and the rest, which reads it; None where
    no output has the axis. What has no parts together (an entropy behind a softmax) is the rest's,
    the last of a chain first."""
    if not any(axis in store.axes for _, store in program.stores()):
        return None
    along = {n for n in reductions_of(program) if axis in reduced_axes(program.nodes[n])}
    depths = {n: len(_all_before(program, n) & along) for n in along}
    every = None
    for most in sorted({*depths.values()}, reverse=True):
        ends = {boundary_of(program, n) for n in along if depths[n] <= most}
        found = parted_at(program, ends, taken)
        every = every or found
        if _parts(found[0], axis, 2) is not None:
            return found
    return every


def _uneven(program: Program, axis: str) -> bool:
    """Whether lengths that are read say how far the axis goes: many parts even it out."""
    return any(condition.reads for condition in live_range(program, axis))


def _whole_parts(extent: int) -> list[int]:
    """The fewest parts that a tile of a product holds one of, and the next more; the last one is
    shorter where none divides the extent."""
    sizes = [size for size in range(WIDEST, SHORTEST - 1, -1) if extent % size == 0]
    if not sizes:
        return [-(-extent // size) for size in (WIDEST, WIDEST // 2)]
    return [extent // size for size in sizes[:1] + [s for s in sizes[1:] if s <= WIDEST // 2][:1]]


def _beside_products(program: Program) -> Iterable[int]:
    """Where reductions end that are met by products for tensor cores and made of none: in the
    products' kernel (norms of both sides of a similarity) they would be computed for every tile."""
    made = {n for n in reductions_of(program) if is_for_tensor_cores(program, n)}
    for position in reductions_of(program) if made else ():
        if position in made:
            continue
        if _before(program, position) & made:
            made.add(position)  # of products, through others
        else:
            end = boundary_of(program, position)
            if not is_output(program, end):
                yield end


@lru_cache(maxsize=256)
def _parts(program: Program, axis: str, parts: int) -> Program | None:
    """The program in equal parts of an axis; None where they are too short or cannot be merged."""
    extent = program.axes[axis]
    over = (reduced_axes(program.nodes[n]) for n in reductions_of(program))
    together = min((volume(program, axes) for axes in over if axis in axes), default=extent)
    if parts < 2 or together // parts < SHORTEST:
        return None
    unit = UNIT if extent % parts else 1
    if parts > -(-extent // unit):
        return None
    with suppress(UsageError):
        return parted(program, axis, parts, unit)
    return None


@lru_cache(maxsize=256)
def _chained(program: Program) -> str | None:
    """The longest axis along which a reduction depends on another."""
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return None
    sums = {n: set(reduced_axes(program.nodes[n])) for n in reductions_of(program)}
    found = {
        axis
        for position, axes in sums.items()
        for before in _before(program, position)
        for axis in axes & sums[before]
    }
    return _longest(program, found)


@lru_cache(maxsize=256)
def _across(program: Program) -> str | None:
    """The longest axis of products along which what is made of them is reduced, by no product, so
    that a block of its own has each part: without parts the products would go through memory."""
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return None
    found, walked = set[str](), set[str]()
    for position in reductions_of(program):
        axes = {*reduced_axes(program.nodes[position])}
        if is_for_tensor_cores(program, position):
            walked |= axes
            continue
        for before in _before(program, position):
            if is_for_tensor_cores(program, before):
                found |= axes & {*program.nodes[before].axes}
    longer = {axis for axis in found - walked if program.axes[axis] > WIDEST}
    return _longest(program, longer)


@lru_cache(maxsize=256)
def _several(program: Program) -> str | None:
    """The longest axis of a reduction along several, of no product: blocks share the walk of one
    axis at most, so one block would have all of them (a sum over pairs of points). None where those
    that lie behind each other are one."""
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return None
    joined = joined_axes(program)
    if all(len(reduced_axes(joined.nodes[n])) < 2 for n in reductions_of(joined)):
        return None
    stored = {axis for _, store in program.stores() for axis in store.axes}
    sums = (n for n in reductions_of(program) if not is_for_tensor_cores(program, n))
    over = (reduced_axes(program.nodes[n]) for n in sums)
    found = {axis for axes in over if len(axes) > 1 for axis in axes} - stored
    return _longest(program, found)


@lru_cache(maxsize=256)
def _behind(program: Program) -> str | None:
    """The longest axis along which what others reduce at each of its points is reduced (a softmax
    of every pixel, and its mean): without parts those would go through memory."""
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return None
    if any(is_for_tensor_cores(program, n) for n in reductions_of(program)):
        return None
    stored = {axis for _, store in program.stores() for axis in store.axes}
    found = {
        axis
        for position in reductions_of(program)
        for before in _before(program, position)
        for axis in {*reduced_axes(program.nodes[position])} & {*program.nodes[before].axes}
    }
    return _longest(program, found - stored)


def _parted_axis(program: Program) -> str | None:
    """The axis of which parts are made: across products, else along a chain of reductions, else of
    those that a reduction has at once, else behind others at each of its points."""
    chained, behind = _chained(program), _behind(program)
    if behind and (chained is None or program.axes[chained] < 2 * SHORTEST):
        return _across(program) or _several(program) or behind
    return _across(program) or chained or _several(program)


@lru_cache(maxsize=256)
def _beside_axis(program: Program) -> str | None:
    """The longest axis of outputs along which sums are that neither they nor each other are made
    of."""
    sums = {n: _all_before(program, n) for n in reductions_of(program)}
    stores = {place: _all_before(program, place) for place, _ in program.stores()}
    found = []
    for axis in program.axes:
        along = {n for n in sums if axis in reduced_axes(program.nodes[n])}
        own = [place for place, store in program.stores() if axis in store.axes]
        apart = not any(sums[n] & along for n in along)
        plain = all(isinstance(program.nodes[n].op, Reduce | Contract) for n in along)
        heavy = any(is_for_tensor_cores(program, n) for n in along)
        if along and own and apart and plain and not heavy:
            found += [axis] if not any(stores[place] & along for place in own) else []
    return _longest(program, found)


def _all_before(program: Program, position: int) -> set[int]:
    """Reductions that a value is made of, those behind others too."""
    found = set[int]()
    pending = [*_before(program, position)]
    while pending:
        here = pending.pop()
        if here not in found:
            found.add(here)
            pending.extend(_before(program, here))
    return found


def _before(program: Program, position: int) -> set[int]:
    """Reductions that one is made of."""
    found: set[int] = set()
    for arg in program.nodes[position].args:
        found.update(depends_on_reduction(program, arg))
    return found


def _blocks(program: Program, axis: str) -> int:
    """Blocks that a kernel of the program has at least, without parts."""
    along = [n for n in reductions_of(program) if axis in reduced_axes(program.nodes[n])]
    products = [product_of(program, n) for n in along if is_for_tensor_cores(program, n)]
    if not any(products):
        return min(
            -(-volume(program, _apart(program, position)) // _together(program, position))
            for position in along
        )
    return min(
        volume(program, product.batch) * -(-volume(program, product.rows) // BLOCK)
        for product in products
        if product is not None
    )


def _apart(program: Program, position: int) -> tuple[str, ...]:
    """The axes of a reduction of which blocks share out the points: not those along which what it
    is made of is reduced, which each block has whole."""
    inner = {a for n in _before(program, position) for a in reduced_axes(program.nodes[n])}
    return tuple(axis for axis in program.nodes[position].axes if axis not in inner)


def _held(program: Program, axis: str) -> int:
    """In how many parts of an axis one fits a block's registers; 0 for those of products."""
    along = [n for n in reductions_of(program) if axis in reduced_axes(program.nodes[n])]
    if any(is_for_tensor_cores(program, n) for n in along):
        return 0
    points = (
        volume(program, reduced_axes(program.nodes[n])) * _together(program, n) for n in along
    )
    return -(-max(points) // HELD)


def _together(program: Program, position: int) -> int:
    """Points of a reduction whose summands lie in the same lines of memory: nearby columns."""
    node = program.nodes[position]
    op = largest_load(program, node.args[0])
    if op is None or any(index.gather is not None for index in op.index):
        return 1
    access = load_access(op, program.scope.tensors[op.tensor])
    line = LINE // dtype_of(access.dtype).bytes
    strides = {axis: abs(access.stride(axis)) for axis in node.axes}
    return prod(min(program.axes[a], line // s) for a, s in strides.items() if 0 < s < line)
