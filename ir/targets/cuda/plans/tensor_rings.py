"""Rings of a kernel on wgmma: which operands share slots in shared memory, and how many slots.

What a tile keeps for its whole walk is held, in one slot; every other ring has the slots of
`stages`. Where there are several rings, each but the first streamed one may have more or fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from ir.columns import Decision
from ir.ops.load import Load
from ir.program import Program
from ir.targets.cuda.build.products import Product, loads_of
from ir.targets.cuda.build.roles import Roles

HELD = "held"
PANEL = 64  # points that lines of whole panels divide, of any type
EXTRAS = {True: (0, 1), False: (0, 1, 2, -1)}  # by whether the ring is held

Rings = dict[str, dict[int, Product]]


def rings_of(program: Program, roles: Roles) -> Rings:
    """Loads that TMA fetches, with their product, by ring, in the order in which a block uses
    the rings."""
    walked = {*(roles.folded if roles.at_once else roles.walked)}
    found: Rings = {HELD: {}, "inner": {}, "outer": {}, "late": {}}
    for product in roles.products:
        ring = "inner"
        if product in roles.outer:
            plain = product.a not in roles.computed and _loaded(program, product.a)
            ring = "late" if roles.inner and not plain else "outer"
        for position in fetched_of(program, roles, product):
            if position in found_twice(program, roles):
                continue
            varies = walked & set(program.nodes[position].axes)
            found[ring if varies else HELD][position] = product
    return {name: operands for name, operands in found.items() if operands}


def fetched_of(program: Program, roles: Roles, product: Product) -> tuple[int, ...]:
    """The loads that a product waits for: its plain operands, what a computed one is made of."""
    found = [position for position in (product.a, product.b) if _loaded(program, position)]
    if product.a in roles.computed:
        loads = loads_of(program, product.a)
        found += [load for load in roles.raw if load in loads]
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=512)
def found_twice(program: Program, roles: Roles) -> Mapping[int, int]:
    """Second operands of outer products whose tile an inner product has already: the same points of
    a tensor by other names of an axis, of which both have all. Load of the one, of the other."""
    found: dict[int, int] = {}
    for product in roles.outer if roles.inner else ():
        for inner in roles.inner:
            if _same_points(program, product, inner):
                found[product.b] = inner.b
    return found


def _same_points(program: Program, outer: Product, inner: Product) -> bool:
    nodes = program.nodes
    first, second = nodes[inner.b], nodes[outer.b]
    if not isinstance(first.op, Load) or not isinstance(second.op, Load) or first == second:
        return False
    if len(inner.over) != 1 or len(outer.columns) != 1 or first.args or second.args:
        return False
    held, column = inner.over[0], outer.columns[0]
    same = program.axes[held] == program.axes[column]
    whole = program.axes[held] % PANEL == 0 and first.dtype == second.dtype
    renamed = tuple(
        replace(i, terms=tuple((held if a == column else a, c) for a, c in i.terms))
        for i in second.op.index
    )
    return same and whole and replace(second.op, index=renamed) == first.op


def rings_taken(
    program: Program, roles: Roles, products: Iterable[Product]
) -> tuple[str, ...]:  # fmt: skip
    """Rings in which products have a slot of a block, in the order of their use."""
    some = {*products}
    again = found_twice(program, roles)
    twice = {again[one.b] for one in some if one.b in again and one in roles.outer}
    return tuple(
        name for name, own in rings_of(program, roles).items()
        if name != HELD and (some & {*own.values()} or twice & own.keys())
    )  # fmt: skip


def _loaded(program: Program, position: int) -> bool:
    return isinstance(program.nodes[position].op, Load)


def extra_names(program: Program, roles: Roles) -> Iterator[tuple[str, str]]:
    """Rings whose depth is a choice of its own, and the stem of the decision: "extra.TENSOR".

    A tensor may be in several rings, of which each but the first says its name too.
    """
    rings = rings_of(program, roles)
    streamed = [name for name in rings if name != HELD]
    taken: set[str] = set()
    for name in rings:
        if len(rings) > 1 and name != streamed[0]:
            tensors = dict.fromkeys(_tensor(program, position) for position in rings[name])
            stem = f"extra.{'+'.join(tensors)}"
            stem = f"{stem}.{name}" if stem in taken else stem
            taken.add(stem)
            yield name, stem


def _tensor(program: Program, position: int) -> str:
    op = program.nodes[position].op
    assert isinstance(op, Load)
    return op.tensor


def extra_decision(name: str, stem: str, mark: str, owner: str) -> Decision:
    """How many slots a ring has beyond those that it has anyhow."""
    held = name == HELD
    why = f"slots of the ring of {stem.partition('.')[2]} beyond {'one' if held else '`stages`'}"
    return Decision(f"{stem}{mark}", EXTRAS[held], "pipeline", owner, why, 0, unsaid=0)
