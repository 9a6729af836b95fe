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
from ir.errors import ProgramError
from ir.handed import all_handed
from ir.ops.base import TensorSpec
from ir.ops.load import Load
from ir.ops.reduce import Carry
from ir.phases import Phase, phases_of
from ir.program import Program
from ir.rewrite.joining import joined_axes
from ir.rewrite.parting import cut
from ir.rewrite.stated import stated
from ir.targets.cuda.build.boundaries import boundary_of, last_of
from ir.targets.cuda.build.cut import has_rows_across, stored_at
from ir.targets.cuda.build.laid import Known, laid_anew, outputs_anew
from ir.targets.cuda.build.orders import is_for_tensor_cores
from ir.targets.cuda.build.outputs import has_stores_beside
from ir.targets.cuda.build.products import (
    STRIDE_UNIT,
    Product,
    depends_on_reduction,
    product_of,
)
from ir.targets.cuda.build.role_rules import WIDEST
from ir.targets.cuda.space.parts import (
    BLOCK,
    counts_beside,
    counts_of,
    in_parts,
    in_parts_beside,
    is_output,
    reductions_of,
)

USUAL = "usual"
SUMS, PRODUCTS, STORED = "sums-stored", "products-stored", "all-stored"
"""Reductions that are no products for tensor cores, those that are, and both."""
MET = "sums-met"
"""What such reductions over the same points come together in: one value of all of them."""
OPERANDS = "operands-stored"
"""Factors of products for tensor cores that are computed of nothing reduced."""
LAID = "inputs-laid"
"""Copies of inputs whose dimensions are in no order that tensor cores take, in one that they do."""
MADE = "outputs-laid"
"""Outputs of products as these have them, where neighbours in memory are of several batches."""
REPEATED = "repeated-stored"
"""Products that others are made of along axes that they lack, each point of which repeats them."""
UNLIKE = "unlike-stored"
"""Products that factors of others are made of, whose rows and columns are not those of the chain
(a bias that is a projection of pairs, beside products of queries and keys; queries that are
products of heads and features)."""
JOINED = "axes-joined"
"""Nothing more than usually; axes that always go together are one, and what a chain of products has
too many columns of is in parts that blocks of their own have, as in all but the usual one."""
WIDE = "columns-whole"
"""The same, with all columns of a chain of products in one block, whose warp groups share them;
begins the name of such a residence in parts, too."""
BESIDE = "outputs-beside"
"""Nothing more than usually; what is reduced is an output beside one over all of its points, in the
same kernel: what both are made of is read once, and blocks are as many as sums. Begins the name of
such a residence in parts, too, each of which has sums of its own."""
HELD = "rows-held"
"""Nothing that is a sum of a row, of which sums across rows are made (scores that weigh the very
rows that they are sums of): a block has whole rows, and reads them once. Begins the name of such a
residence in parts, too."""
PARTS = "parts-"
"""Results of a long chain of reductions, or of those across products, for each of so many parts of
their axis, which are merged."""
ROWS = "rows-in-blocks"
"""Nothing that is read at other points of its own row alone: a block has rows to itself, and what
is computed of them, one step after the other, in shared memory."""
STEPS = "steps-whole"
"""Nothing that only the steps of a loop read: a step computes it, and keeps it to itself."""
HANDED = "states-handed-on"
"""Nothing that is added to a state alone: who computes it keeps the state, and hands it on."""
AND = "+"  # between the names of what a residence has together
BOTH = f"{REPEATED}{AND}{LAID}"
BESIDES = (LAID, MADE)  # what names are joined with that say which values are in memory
ROOM = 96 << 10  # bytes of a row's values: every card has that much, most have it twice


@lru_cache(maxsize=512)
def pieces_of(program: Program, residence: str) -> tuple[Phase, ...]:
    """The phases of a program, those with reductions cut where the residence has values in memory;
    raises KeyError for a residence that there is none of."""
    if residence == ROWS:
        return behind_scatters(phases_of(program, ROOM))
    if residence == STEPS:
        return behind_scatters(phases_of(stated(program), whole=True))
    words = residence.split(AND)
    phases = behind_scatters(phases_of(program, handing=HANDED in words))
    if residence in (USUAL, HANDED):
        return phases
    residence = next((word for word in words if word not in (HANDED, *BESIDES)), JOINED)
    known: Known = {}
    wide = residence.startswith(WIDE)
    for word in (WIDE, HELD):
        residence = residence.removeprefix(word).removeprefix("-") or JOINED
    found: list[Phase] = []
    taken = {spec.name for phase in phases for spec in phase.program.tensors}
    for phase in phases:
        if phase.plain:
            found.append(phase)
            continue
        if residence.startswith(PARTS):
            parts = in_parts(phase.program, int(residence.removeprefix(PARTS)), frozenset(taken))
        elif residence.startswith(BESIDE):
            count = residence.removeprefix(BESIDE).removeprefix(f"-{PARTS}")
            parts = (phase.program,)
            if count:
                parts = in_parts_beside(phase.program, int(count), frozenset(taken))
        else:
            parts = _at(phase.program, _stored(phase.program, residence), frozenset(taken))
        taken |= {spec.name for part in parts for spec in part.tensors}
        if LAID in words:
            laid = (laid_anew(part, frozenset(taken), known) for part in parts)
            parts = tuple(one for several in laid for one in several)
            taken |= {order.laid.name for order in known.values()}
        if MADE in words:
            parts = tuple(one for part in parts for one in outputs_anew(part, frozenset(taken)))
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
    whole = [phase.program for phase in pieces_of(program, USUAL) if not phase.plain]
    usual = tuple(dict.fromkeys(one for own in whole for one in (_narrowed(own), own)))
    counts = dict.fromkeys(n for phase in usual for n in counts_of(phase, processors))
    parts = [f"{PARTS}{count}" for count in counts]
    wide = (f"{WIDE}-{name}" for name in parts)
    stored = (OPERANDS, REPEATED, SUMS, MET, PRODUCTS, STORED, UNLIKE)
    for name in (ROWS, STEPS, HANDED, *parts, *wide, JOINED, WIDE, LAID, MADE, *stored):
        found.setdefault(pieces_of(program, name), name)
    handed = [f"{HANDED}{AND}{name}" for name in (OPERANDS, REPEATED, LAID, BOTH)]
    made = [f"{name}{AND}{MADE}" for name in (LAID, OPERANDS, PRODUCTS, STORED)]
    made = made if found[pieces_of(program, MADE)] == MADE else []
    for name in (BOTH, *made, *(handed if all_handed(program) else ())):
        if _has_more(program, name):
            found.setdefault(pieces_of(program, name), name)
    beside = any(has_stores_beside(p.program) for p in pieces_of(program, BESIDE) if not p.plain)
    shared = dict.fromkeys(n for phase in usual for n in counts_beside(phase, processors))
    across = any(has_rows_across(p.program) for p in pieces_of(program, JOINED) if not p.plain)
    return (
        *found.values(), *([BESIDE] if beside else []),
        *([HELD, *(f"{HELD}-{name}" for name in parts)] if across else []),
        *(f"{BESIDE}-{PARTS}{count}" for count in shared),
    )  # fmt: skip


def _has_more(program: Program, name: str) -> bool:
    """Whether each thing that a residence has in memory is more than it has without."""
    words, count = name.split(AND), len(pieces_of(program, name))
    fewer = (AND.join(w for w in words if w != word) for word in words if word != HANDED)
    return all(count > len(pieces_of(program, less)) for less in fewer)


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


def _products(program: Program) -> Iterable[Product]:
    """Those that tensor cores compute."""
    for position in reductions_of(program):
        product = product_of(program, position)
        if product is not None and is_for_tensor_cores(program, position):
            yield product


def _chain_columns(program: Program) -> Iterable[str]:
    """Axes of products' plain operands where the other one is made of a product."""
    for product in _products(program):
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
    if residence == REPEATED:
        return {boundary_of(program, product) for product in _repeated(program)}
    if residence == UNLIKE:
        return {boundary_of(program, product) for product in _unlike(program)}
    wanted = {SUMS: (False,), MET: (False,), PRODUCTS: (True,), STORED: (False, True)}[residence]
    far = {STORED: True, MET: False}.get(residence)  # those that go where all they meet has met
    ends = (
        (last_of if is_product == far else boundary_of)(program, position)
        for position in reductions_of(program)
        if (is_product := is_for_tensor_cores(program, position)) in wanted
    )
    return {end for end in ends if not is_output(program, end)}


def _repeated(program: Program) -> Iterable[int]:
    """Products for tensor cores of which operands of others are made at each point of more axes."""
    for product in _products(program):
        for factor in (product.a, product.b):
            axes = {axis for axis in program.nodes[factor].axes if program.axes[axis] > 1}
            for source in depends_on_reduction(program, factor):
                lacks = axes - {*program.nodes[source].axes}
                if lacks and is_for_tensor_cores(program, source):
                    yield source


def _unlike(program: Program) -> Iterable[int]:
    """Products that a factor of another is made of, and with which it is no chain: rows of that and
    what it sums over are not of one factor each."""
    for product in _products(program):
        sides = ((product.a, product.rows), (product.b, product.columns))
        for factor, rows in sides:
            sources = (
                source
                for node in depends_on_reduction(program, factor)
                if is_for_tensor_cores(program, node)
                and (source := product_of(program, node)) is not None
            )
            yield from (
                source.position for source in sources if not _chains(source, rows, product.over)
            )


def _chains(source: Product, rows: Iterable[str], over: Iterable[str]) -> bool:
    """Whether rows are of one factor of a product, and what is summed of the other."""
    sides = ({*source.rows}, {*source.columns})
    return any({*rows} <= one and {*over} <= other for one, other in (sides, sides[::-1]))


def _computed_factors(program: Program) -> Iterable[int]:
    for product in _products(program):
        for factor in (product.a, product.b):
            computed = not isinstance(program.nodes[factor].op, Load)
            if computed and not depends_on_reduction(program, factor):
                yield factor
