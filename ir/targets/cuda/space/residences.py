"""Which values go through memory on a card beyond what an engine asks for: `residence`.

As it is usually cut, a program has as few kernels as each engine allows: what is reduced is
computed again by every block that needs it, and products that no kernel holds together are left to
plain units. Where points are few or products many, more kernels with less to do each are faster:
every reduction in one of its own, and in memory what all of its readers read. Knows no decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from ir.behind import behind_scatters
from ir.dtypes import dtype_of
from ir.errors import ProgramError, UsageError
from ir.ops.base import TensorSpec
from ir.ops.load import Load
from ir.ops.reduce import Carry
from ir.ops.store import Store
from ir.phases import Phase, phases_of
from ir.program import Program
from ir.rewrite.domain import live_range
from ir.rewrite.joining import joined_axes
from ir.rewrite.parting import cut, parted
from ir.rewrite.stated import stated
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.cut import (
    boundary_of,
    has_stores_beside,
    parted_at,
    stored_at,
)
from ir.targets.cuda.build.orders import is_for_tensor_cores
from ir.targets.cuda.build.products import STRIDE_UNIT, depends_on_reduction, product_of, volume
from ir.targets.cuda.build.roles import WIDEST

USUAL = "usual"
SUMS, PRODUCTS, STORED = "sums-stored", "products-stored", "all-stored"
"""Reductions that are no products for tensor cores, those that are, and both."""
OPERANDS = "operands-stored"
"""Factors of products for tensor cores that are computed of nothing reduced."""
JOINED = "axes-joined"
"""Nothing more than usually; axes that always go together are one, and what a chain of products has
too many columns of is in parts that blocks of their own have, as in all but the usual one."""
WIDE = "columns-whole"
"""The same, with all columns of a chain of products in one block, whose warp groups share them;
begins the name of such a residence in parts, too."""
BESIDE = "outputs-beside"
"""Nothing more than usually; what is reduced is an output beside one over all of its points, in the
same kernel: what both are made of is read once, and blocks are as many as sums."""
PARTS = "parts-"
"""Results of a long chain of reductions, or of those across products, for each of so many parts of
their axis, which are merged."""
ROWS = "rows-in-blocks"
"""Nothing that is read at other points of its own row alone: a block has rows to itself, and what
is computed of them, one step after the other, in shared memory."""
STEPS = "steps-whole"
"""Nothing that only the steps of a loop read: a step computes it, and keeps it to itself."""
ROOM = 96 << 10  # bytes of a row's values: every card has that much, most have it twice
SHORTEST = 128  # points of a part
BLOCK = 64  # rows of a product that one block has at least


@lru_cache(maxsize=512)
def pieces_of(program: Program, residence: str) -> tuple[Phase, ...]:
    """The phases of a program, those with reductions cut where the residence has values in memory;
    raises KeyError for a residence that there is none of."""
    if residence == ROWS:
        return behind_scatters(phases_of(program, ROOM))
    if residence == STEPS:
        return behind_scatters(phases_of(stated(program), whole=True))
    phases = behind_scatters(phases_of(program))
    if residence == USUAL:
        return phases
    wide = residence.startswith(WIDE)
    residence = residence.removeprefix(WIDE).removeprefix("-") or JOINED
    found: list[Phase] = []
    taken = {spec.name for phase in phases for spec in phase.program.tensors}
    for phase in phases:
        if phase.plain:
            found.append(phase)
            continue
        if residence.startswith(PARTS):
            parts = _in_parts(phase.program, int(residence.removeprefix(PARTS)), frozenset(taken))
        elif residence == BESIDE:
            parts = (phase.program,)
        else:
            parts = _at(phase.program, _stored(phase.program, residence), frozenset(taken))
        taken |= {spec.name for part in parts for spec in part.tensors}
        joined = map(joined_axes, parts)
        found += [Phase(p if wide else _narrowed(p), False) for p in joined]
    return tuple(found)


def _at(program: Program, nodes: set[int], taken: frozenset[str]) -> tuple[Program, ...]:
    """What computes the values of `nodes` into memory, and the rest, axes joined. Values lie one
    behind the other where who reads them has rows of them that begin where copies may, though an
    axis is short (the two codes of a byte); else their last axis is padded."""
    dense = tuple(map(joined_axes, stored_at(program, nodes, taken, padded=False)))
    own = {spec.name for spec in program.tensors}
    if all(spec.name in own or _in_rows(spec) for part in dense for spec in part.inputs):
        return dense
    return tuple(map(joined_axes, stored_at(program, nodes, taken)))


def _in_rows(spec: TensorSpec) -> bool:
    row = spec.shape[-1] if spec.shape else 0
    return row * dtype_of(spec.dtype).bytes % STRIDE_UNIT == 0


@lru_cache(maxsize=256)
def residences(program: Program, processors: int) -> tuple[str, ...]:
    """Those that differ on a card of so many processors, the usual one first."""
    found = {pieces_of(program, USUAL): USUAL}
    parts = _part_names(program, processors)
    wide = (f"{WIDE}-{name}" for name in parts)
    for name in (ROWS, STEPS, *parts, *wide, JOINED, WIDE, OPERANDS, SUMS, PRODUCTS, STORED):
        found.setdefault(pieces_of(program, name), name)
    beside = any(has_stores_beside(p.program) for p in pieces_of(program, BESIDE) if not p.plain)
    return (*found.values(), *([BESIDE] if beside else []))


def _part_names(program: Program, processors: int) -> list[str]:
    """In as many parts as give every processor a block, in half and in twice as many, more where
    they are uneven: what parts leave for each other may be more than what there is to read."""
    phases = [_narrowed(phase.program) for phase in pieces_of(program, USUAL) if not phase.plain]
    found: list[str] = []
    for phase in phases:
        axis = _parted_axis(phase)
        if axis is None:
            continue
        counts = []
        wanted = -(-processors // _blocks(phase, axis))
        if axis == _chained(phase) and wanted > 1:
            fewest = 1 << (wanted - 1).bit_length()
            counts = [fewest // 2, fewest, 2 * fewest]
            counts += [4 * fewest] if _uneven(phase, axis) else []
        if axis == _across(phase):
            counts += _whole_parts(phase.axes[axis])
        found += [f"{PARTS}{parts}" for parts in counts if _parts(phase, axis, parts)]
    return list(dict.fromkeys(found))


def _uneven(program: Program, axis: str) -> bool:
    """Whether lengths that are read say how far the axis goes: many parts even it out."""
    return any(condition.reads for condition in live_range(program, axis))


def _whole_parts(extent: int) -> list[int]:
    """The fewest parts that a tile of a product holds one of, and the next more."""
    sizes = [size for size in range(WIDEST, SHORTEST - 1, -1) if extent % size == 0]
    return [extent // size for size in sizes[:1] + [s for s in sizes[1:] if s <= WIDEST // 2][:1]]


def _in_parts(program: Program, parts: int, taken: frozenset[str]) -> tuple[Program, ...]:
    """A kernel of every part and one that merges them; the program where it has no such parts."""
    axis = _parted_axis(program)
    made = _parts(program, axis, parts) if axis is not None else None
    if made is None:
        return (program,)
    inner = {n for n in _reductions(made) if f"{axis}_in" in reduced_axes(made.nodes[n])}
    first, merge = parted_at(made, inner, taken)
    beside = set(_beside_products(first))
    if not beside:
        return first, merge
    taken |= {spec.name for part in (first, merge) for spec in part.tensors}
    return (*stored_at(first, beside, taken), merge)


def _beside_products(program: Program) -> Iterable[int]:
    """Where reductions end that are met by products for tensor cores and made of none: in the
    products' kernel (norms of both sides of a similarity) they would be computed for every tile."""
    made = {n for n in _reductions(program) if is_for_tensor_cores(program, n)}
    for position in _reductions(program) if made else ():
        if position in made:
            continue
        if _before(program, position) & made:
            made.add(position)  # of products, through others
        else:
            end = boundary_of(program, position)
            if not _is_output(program, end):
                yield end


@lru_cache(maxsize=256)
def _parts(program: Program, axis: str, parts: int) -> Program | None:
    """The program in equal parts of an axis; None where they are too short or cannot be merged."""
    extent = program.axes[axis]
    over = (reduced_axes(program.nodes[n]) for n in _reductions(program))
    together = min((volume(program, axes) for axes in over if axis in axes), default=extent)
    if parts < 2 or extent % parts or together // parts < SHORTEST:
        return None
    with suppress(UsageError):
        return parted(program, axis, parts)
    return None


@lru_cache(maxsize=256)
def _chained(program: Program) -> str | None:
    """The longest axis along which a reduction depends on another, if no output has it."""
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return None
    stored = {axis for _, store in program.stores() for axis in store.axes}
    sums = {n: set(reduced_axes(program.nodes[n])) - stored for n in _reductions(program)}
    found = {
        axis
        for position, axes in sums.items()
        for before in _before(program, position)
        for axis in axes & sums[before]
    }
    return max(found, key=lambda axis: program.axes[axis], default=None)


@lru_cache(maxsize=256)
def _across(program: Program) -> str | None:
    """The longest axis of products along which what is made of them is reduced, by no product, so
    that a block of its own has each part: without parts the products would go through memory."""
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return None
    stored = {axis for _, store in program.stores() for axis in store.axes}
    found, walked = set[str](), set[str]()
    for position in _reductions(program):
        axes = {*reduced_axes(program.nodes[position])}
        if is_for_tensor_cores(program, position):
            walked |= axes
            continue
        for before in _before(program, position):
            if is_for_tensor_cores(program, before):
                found |= axes & {*program.nodes[before].axes}
    longer = {axis for axis in found - walked - stored if program.axes[axis] > WIDEST}
    return max(longer, key=lambda axis: program.axes[axis], default=None)


def _parted_axis(program: Program) -> str | None:
    """The axis of which parts are made: across products, else along a chain of reductions."""
    return _across(program) or _chained(program)


def _before(program: Program, position: int) -> set[int]:
    """Reductions that one is made of."""
    found: set[int] = set()
    for arg in program.nodes[position].args:
        found.update(depends_on_reduction(program, arg))
    return found


def _blocks(program: Program, axis: str) -> int:
    """Blocks that a kernel of the program has at least, without parts."""
    along = [n for n in _reductions(program) if axis in reduced_axes(program.nodes[n])]
    products = [product_of(program, n) for n in along if is_for_tensor_cores(program, n)]
    if not any(products):
        return min(volume(program, program.nodes[position].axes) for position in along)
    return min(
        volume(program, product.batch) * -(-volume(program, product.rows) // BLOCK)
        for product in products
        if product is not None
    )


def _narrowed(program: Program) -> Program:
    """The program with the columns of a chain's last product in as few equal parts as registers
    hold one of."""
    for axis in _chain_columns(program):
        extent = program.axes[axis]
        parts = next(
            (n for n in range(2, extent) if extent % n == 0 and extent // n <= WIDEST), extent
        )
        if extent > WIDEST and extent // parts >= BLOCK:
            with suppress(ProgramError):
                return cut(program, axis, parts)
    return program


def _chain_columns(program: Program) -> Iterable[str]:
    """Axes of products' plain operands where the other one is made of a product."""
    for position in _reductions(program):
        product = product_of(program, position)
        if product is None or not is_for_tensor_cores(program, position):
            continue
        sides = ((product.a, product.columns), (product.b, product.rows))
        for operand, axes in sides:
            before = depends_on_reduction(program, operand)
            if any(is_for_tensor_cores(program, source) for source in before):
                yield from axes


def _stored(program: Program, residence: str) -> set[int]:
    """Where values of reductions end that go through memory, but for those that are outputs."""
    if residence == JOINED:
        return set()
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return set()  # what is streamed is whole in no place
    if residence == OPERANDS:
        return set(_computed_factors(program))
    wanted = {SUMS: (False,), PRODUCTS: (True,), STORED: (False, True)}[residence]
    ends = (
        boundary_of(program, position)
        for position in _reductions(program)
        if is_for_tensor_cores(program, position) in wanted
    )
    return {end for end in ends if not _is_output(program, end)}


def _computed_factors(program: Program) -> Iterable[int]:
    for position in _reductions(program):
        product = product_of(program, position)
        if product is None or not is_for_tensor_cores(program, position):
            continue
        for factor in (product.a, product.b):
            computed = not isinstance(program.nodes[factor].op, Load)
            if computed and not depends_on_reduction(program, factor):
                yield factor


def _reductions(program: Program) -> Iterable[int]:
    return (position for position, node in enumerate(program.nodes) if is_reduction(node))


def _is_output(program: Program, position: int) -> bool:
    """Whether nothing reads a value but what stores it."""
    return all(isinstance(program.nodes[user].op, Store) for user in program.users(position))
