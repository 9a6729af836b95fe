"""What has to hold of the roles of axes on tensor cores: a Refusal says what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.computed import fetch_problem, large_loads, register_problem
from ir.targets.cuda.build.products import (
    HELD,
    Product,
    copy_problem,
    depends_on_reduction,
    kind_of,
    memory_order,
    summed_order,
    volume,
)
from ir.targets.cuda.layouts.operands import index_axes, operand_tile
from ir.targets.cuda.layouts.words import word_order
from ir.targets.cuda.prelude.families import WGMMA_KINDS

if TYPE_CHECKING:
    from ir.targets.cuda.build.roles import Roles

WIDEST = 256  # columns of sums that one warp group of a chain has in registers
GROUPS = 2  # warp groups that have columns of one tile each


def check_axes(
    program: Program, outer: list[Product], inner: list[Product], walked: tuple[str, ...],
    columns: tuple[str, ...], computed: frozenset[int], stored: tuple[str, ...],
) -> None:  # fmt: skip
    """Refusal for products that are no kernel's; `stored`: walked axes that outputs have."""
    if not outer[0].rows:
        raise Refusal("rows", "all rows of one product are batches of another")
    for product in outer:
        if set(product.over) != set(walked) or set(product.columns) != set(columns):
            raise Refusal("loops", "products over different axes in one kernel")
        if kind_of(program, product) != kind_of(program, outer[0]):
            raise Refusal("types", "sums of products of different types in one kernel")
        made = product.a in computed
        plain = [product.b]
        if made:
            plain = []  # how it is walked is checked when the walk is known
        elif not inner or is_loaded(program, product.a):
            plain.insert(0, product.a)
        _plain(program, plain)
        problem = register_problem(program, product, product.a) if made else ""
        if problem:
            raise Refusal("registers", problem)
        if inner and not is_loaded(program, product.a):
            _check_words(program, program.nodes[product.a].dtype, inner, walked)
    for product in inner:
        _plain(program, [product.a, product.b])
        _check_summed(program, product)
        if set(product.over) & set(walked) or volume(program, product.over) > HELD:
            raise Refusal("inner", f"{product.over} is too long to be held")
        if set(product.columns) != set(walked) or _walks_beside(program, outer, walked):
            raise Refusal("inner", "the inner product's columns are not what is walked")
    if inner and volume(program, columns) > GROUPS * WIDEST:
        raise Refusal("columns", f"{columns} is too wide for registers")
    products = {product.position for product in (*outer, *inner)}
    reduced = {n for p in outer for n in depends_on_reduction(program, p.a)} - products
    across = {*columns} & {axis for n in reduced for axis in reduced_axes(program.nodes[n])}
    if across:
        raise Refusal("columns", f"an operand is made of what is reduced over {sorted(across)}")
    kept = {*outer[0].rows, *columns, *outer[0].batch, *stored}
    for node in program.nodes:
        if not isinstance(node.op, Store):
            continue
        axes, lacking = {*node.axes}, kept - {*node.axes}
        if not axes <= kept or (lacking and lacking != {*columns} and not inner):
            raise Refusal("stores", f"an output over {node.axes} beside products over {kept}")


def _check_words(
    program: Program, dtype: str, inner: list[Product], walked: tuple[str, ...]
) -> None:
    """Refusal for a computed operand that registers cannot hold as products leave it: where words
    take the columns of inner products in another order, lines of their operands lie in it."""
    order = word_order(dtype)
    for product in inner if order else ():
        tiles = {axis: program.axes[axis] for axis in product.over}
        tiles = {**dict.fromkeys(program.axes, 1), **tiles, walked[-1]: WGMMA_KINDS[dtype].k}
        tile = operand_tile(program, product.b, product.over, tiles)
        problem = replace(tile, order=order).order_problem()
        if tile.contiguous == walked[-1]:
            problem = "lines run along what is walked"
        if problem:
            raise Refusal("registers", f"{tile.spec.name}: {problem}")


def _check_summed(program: Program, product: Product) -> None:
    """Refusal where the points that an instruction sums do not lie together in both operands of a
    product whose sum a tile has whole, along several axes."""
    order = summed_order(program, product)
    step = WGMMA_KINDS[program.nodes[product.a].dtype].k
    for operand in (product.a, product.b):
        axes = tuple(a for a in product.over if a in program.nodes[operand].axes)
        own = memory_order(program, operand, tuple(a for a in axes if program.axes[a] > 1))
        if own == order:
            continue
        if any(index_axes(program, one) for one in (product.a, product.b)):
            raise Refusal("inner", f"operands go through {product.over} by a list")
        meet = own == tuple(a for a in order if a in own) and own[-1:] == order[-1:]
        if not meet or program.axes[order[-1]] % step:
            raise Refusal("inner", f"operands go through {product.over} in ways that do not meet")


def _walks_beside(program: Program, outer: list[Product], walked: tuple[str, ...]) -> bool:
    """Whether several axes are walked, and other reductions go along some of them alone."""
    products = {product.position for product in outer}
    others = (n for n in range(len(program.nodes)) if n not in products)
    sums = [{*reduced_axes(program.nodes[n])} for n in others if is_reduction(program.nodes[n])]
    return len(walked) > 1 and any({*walked} & axes and {*walked} != axes for axes in sums)


def check_walks(roles: Roles) -> None:
    """Refusal where what is walked, whole or reduced beside is not what a kernel goes through."""
    _check_copies(roles)
    _check_sums(roles)
    for begin in roles.begins:
        _plain(roles.program, [begin.product.a, begin.product.b])
        _check_summed(roles.program, begin.product)


def _check_sums(roles: Roles) -> None:
    """Refusal for what is reduced along axes that are neither walked nor whole in a tile (parts
    that are merged beside a chain of another axis): a block would have one point of them."""
    program = roles.program
    products = {product.position for product in roles.products}
    sides = [{*roles.walked}, {*roles.columns}, {*roles.rows}, {*roles.held}]
    for position, node in enumerate(program.nodes):
        if position in products or not is_reduction(node):
            continue
        over = {axis for axis in reduced_axes(node) if program.axes[axis] > 1}
        if not any(over <= side for side in sides):
            raise Refusal("sums", f"a sum over {sorted(over)} beside products over {roles.walked}")


def _check_copies(roles: Roles) -> None:
    """Refusal where TMA cannot copy what computed operands and those beside them are made of, or
    would have to copy it in two ways."""
    program = roles.program
    plain = {x for p in roles.outer for x in (p.a, p.b)} - roles.computed
    if roles.computed and plain & {*roles.raw}:
        raise Refusal("operand", "what an operand is computed of is an operand itself")
    for position in sorted(roles.computed):
        for load in large_loads(program, position):
            if load not in roles.raw:
                problem = fetch_problem(program, load, roles.walk) or "lines do not follow a tile"
                raise Refusal("operand", f"load {load} of a computed operand: {problem}")
    for product in roles.outer if roles.computed else ():
        problem = fetch_problem(program, product.b, roles.walk)
        if problem:
            raise Refusal("operand", f"operand {product.b}: {problem}")


def is_loaded(program: Program, position: int) -> bool:
    return isinstance(program.nodes[position].op, Load)


def _plain(program: Program, operands: list[int]) -> None:
    for operand in operands:
        problem = copy_problem(program, operand)
        if problem:
            raise Refusal("operand", f"operand {operand}: {problem}")
