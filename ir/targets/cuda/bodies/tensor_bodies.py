"""The body of a kernel's main loop, derived from what its values are made of.

Chained products: the inner ones, what threads make of them, the operands and corrections of the
outer ones, the outer ones. Products with operands in registers: these are formed and multiplied
piece by piece. Else the products alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ir.kernel.body import (
    CONVERT,
    CORRECT,
    MAP,
    MMA,
    REDUCE,
    STORE,
    TENSOR,
    THREADS,
    Body,
    Operation,
    Part,
)
from ir.ops.load import Load
from ir.ops.map import Cast
from ir.ops.reduce import Carry
from ir.program import Program
from ir.targets.cuda.build.products import Product, loads_of
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.plans.tensor_rings import rings_taken
from ir.targets.cuda.text.naming import value_name
from ir.targets.cuda.text.passes import Pass, find_passes, needed

INNER, BETWEEN, FOLD, OUTER = "inner", "between", "fold", "outer"
FORM, MULTIPLY = "form", "multiply"
BY = "wgmma"
BUFFERS = 2  # groups of steps whose operands are in registers


def is_chained(roles: Roles) -> bool:
    """Whether all outer products have an operand that inner ones make."""
    nodes = roles.program.nodes
    computed = all(not isinstance(nodes[product.a].op, Load) for product in roles.outer)
    return bool(roles.inner) and computed


def main_pass(roles: Roles) -> Pass:
    """The pass with the outer products."""
    looped, around = frozenset(roles.walked), frozenset(roles.around)
    passes = find_passes(roles.program, looped, around).passes
    sums = {product.position for product in roles.outer}
    return next(one for one in passes if sums & {*one.reductions})


@lru_cache(maxsize=512)
def body_of(roles: Roles, from_registers: bool = False) -> Body:
    """The body of the main loop; `roles` are those of a program that is streamed."""
    if is_chained(roles):
        return _Chain(roles).body
    if from_registers:
        return _pieces(roles)
    return Body((_multiply(roles),))


def early_loads(roles: Roles) -> tuple[int, ...]:
    """What threads read from memory for every block of a chain."""
    if not is_chained(roles):
        return ()
    nodes, products = roles.program.nodes, {product.position for product in roles.products}
    operands = {x for product in roles.products for x in (product.a, product.b)}
    one = main_pass(roles)
    roots = tuple(arg for n in (*one.reductions, *one.stores) for arg in nodes[n].args)
    stop = frozenset({*products, *one.reductions})
    return tuple(
        n
        for n in needed(roles.program, tuple(r for r in roots if r not in stop), stop)
        if isinstance(nodes[n].op, Load) and {*roles.walked} & {*nodes[n].axes}
        and n not in operands
    )  # fmt: skip


def shared_values(program: Program, products: Iterable[Product]) -> tuple[int, ...]:
    """What becomes operands of products, ahead of its conversion."""
    found = []
    for product in products:
        node = program.nodes[product.a]
        found.append(node.args[0] if isinstance(node.op, Cast) else product.a)
    return tuple(dict.fromkeys(found))


def words_name(program: Program, position: int) -> str:
    """What a computed operand is called as tensor cores read it."""
    return f"{value_name(program, position)}_words"


def _words(program: Program, products: Iterable[Product]) -> tuple[str, ...]:
    names = (words_name(program, product.a) for product in products)
    return tuple(dict.fromkeys(names))


def _sums(program: Program, products: Iterable[Product]) -> tuple[str, ...]:
    return tuple(value_name(program, product.position) for product in products)


def _rings(roles: Roles, products: Iterable[Product]) -> tuple[str, ...]:
    """Rings in which products have a slot of an iteration."""
    return rings_taken(roles.program, roles, products)


def _brought(roles: Roles, products: Iterable[Product]) -> tuple[str, ...]:
    """Operands that tensor cores take from shared memory as they are."""
    nodes = roles.program.nodes
    operands = (operand for product in products for operand in (product.a, product.b))
    loads = (operand for operand in operands if isinstance(nodes[operand].op, Load))
    return tuple(dict.fromkeys(value_name(roles.program, load) for load in loads))


def products_of(products: Iterable[Product]) -> tuple[Part, ...]:
    """Parts that multiply."""
    return tuple(Part(MMA, product.position, BY) for product in products)


def _operands(products: Iterable[Product]) -> tuple[Part, ...]:
    """Parts that make the computed operands of products, each once."""
    return tuple(Part(CONVERT, a, BY) for a in dict.fromkeys(product.a for product in products))


def multiply(name: str, roles: Roles, products: tuple[Product, ...]) -> Operation:
    """Products of tiles that are there, into sums that nothing was added to."""
    read, sums = _brought(roles, products), _sums(roles.program, products)
    return Operation(name, TENSOR, read, sums, _rings(roles, products), products_of(products))


def _multiply(roles: Roles, words: tuple[str, ...] = ()) -> Operation:
    sums, plain = _sums(roles.program, roles.outer), _brought(roles, roles.outer)
    if words:
        firsts = {value_name(roles.program, product.a) for product in roles.outer}
        plain = tuple(name for name in plain if name not in firsts)
    reads = (*words, *plain, *sums)
    parts = products_of(roles.outer)
    return Operation(MULTIPLY, TENSOR, reads, sums, _rings(roles, roles.outer), parts)


def folding_body(roles: Roles) -> Body:
    """Products, and what threads reduce along the folded axes of what they come to."""
    sums = {product.position for product in roles.outer}
    states = [position for position in main_pass(roles).reductions if position not in sums]
    named = tuple(value_name(roles.program, position) for position in states)
    reads = (*_sums(roles.program, roles.outer), *named)
    parts = tuple(Part(REDUCE, position) for position in states)
    fold = Operation(FOLD, THREADS, reads, named, parts=parts)
    return Body((multiply(MULTIPLY, roles, roles.outer), fold))


def _pieces(roles: Roles) -> Body:
    """Operands of one piece are formed beside the products of the piece before."""
    words = _words(roles.program, roles.outer)
    loads = (load for product in roles.outer for load in loads_of(roles.program, product.a))
    made_of = tuple(dict.fromkeys(value_name(roles.program, load) for load in loads))
    rings, parts = _rings(roles, roles.outer), _operands(roles.outer)
    form = Operation(FORM, THREADS, made_of, words, rings, parts)
    return Body((form, _multiply(roles, words)), places=tuple((name, BUFFERS) for name in words))


class _Chain:
    """The body of chained products."""

    def __init__(self, roles: Roles) -> None:
        self.roles, self.program = roles, roles.program
        self.sums = tuple(product.position for product in roles.outer)
        self.fresh = tuple(product.position for product in roles.inner)
        one = main_pass(roles)
        self.states = tuple(p for p in one.reductions if p not in self.sums)
        self.stores = one.stores
        self.shared = shared_values(self.program, roles.outer)
        self.factors = tuple(dict.fromkeys(f for p in self.sums for f in self._corrections(p)))

    @property
    def body(self) -> Body:
        inner, outer = self.roles.inner, self.roles.outer
        sums, words = _sums(self.program, outer), _words(self.program, outer)
        corrected = self._named(p for p in self.sums if self._corrections(p))
        weights = self._named(self.shared)
        factors = self._named(self.factors)
        found = [multiply(INNER, self.roles, inner), *self._between()]
        packed = (*weights, *factors, *corrected)
        parts = [(Part(CORRECT, p.position), *_operands([p])) for p in outer]
        every = tuple(dict.fromkeys(part for both in parts for part in both))
        found.append(Operation(FOLD, THREADS, packed, (*corrected, *words), parts=every))
        read = (*words, *_brought(self.roles, outer), *sums)
        takes = _rings(self.roles, outer)
        found.append(Operation(OUTER, TENSOR, read, sums, takes, products_of(outer)))
        return Body(tuple(found), frozenset(self._named(self._local)))

    def _named(self, positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value_name(self.program, p) for p in positions))

    def _corrections(self, position: int) -> tuple[int, ...]:
        """By what a sum is corrected from one block to the next."""
        node = self.program.nodes[position]
        return tuple(node.args[1:]) if isinstance(node.op, Carry) else ()

    @property
    def _local(self) -> tuple[int, ...]:
        """What threads make for the same step: not what tensor cores wrote."""
        return tuple(p for p in (*self.shared, *self.factors) if p not in self.fresh)

    def _between(self) -> Iterator[Operation]:
        """What threads make of the inner products, if they make anything."""
        if not (self.states or self.stores or self._local):
            return
        nodes = self.program.nodes
        roots = [*self._local, *(a for p in (*self.states, *self.stores) for a in nodes[p].args)]
        stop = frozenset((*self.states, *self.fresh, *self.sums))
        seen = needed(self.program, tuple(r for r in roots if r not in stop), stop)
        read = sorted({*seen, *roots} & {*self.fresh, *self.states})
        written = self._named((*self.states, *self._local))
        reads = dict.fromkeys((*self._named(read), *self._named(self.states)))
        yield Operation(BETWEEN, THREADS, tuple(reads), written, parts=tuple(self._made()))

    def _made(self) -> Iterator[Part]:
        """States, and what becomes operands: that once for all that read it."""
        for position in self.states:
            below = needed(self.program, (position,), frozenset())
            yield from (Part(MAP, value) for value in self.shared if value in below)
            yield Part(REDUCE, position)
        yield from (Part(STORE, store) for store in self.stores)
        yield from (Part(MAP, value) for value in self.shared)
