"""What the axes of a kernel on mma.sync are: products side by side over the same rows and columns.

Operands may be computed: loads and elementwise maps of them are evaluated where a tile is filled.
"""

from __future__ import annotations

from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.stages import is_reduction
from ir.target import Hardware
from ir.targets.cuda.build.products import (
    Product,
    depends_on_reduction,
    for_tensor_cores,
    kind_of,
    largest_load,
    memory_order,
    product_of,
)
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.layouts.operands import index_axes

OLDEST = 80  # first compute capability with mma.sync of these shapes, and with cp.async
SINCE = {"e4m3": 89, "e5m2": 89}  # types that came later
STEP = 16  # points of a sum in one instruction, in types of two bytes


def has_mma(hardware: Hardware, dtype: str) -> bool:
    """Whether the card multiplies matrices of `dtype` by mma.sync."""
    return 10 * hardware["major"] + hardware["minor"] >= SINCE.get(dtype, OLDEST)


def find_mma_roles(program: Program, swap: bool) -> Roles:
    """Roles of the axes, with operands exchanged if `swap`; Refusal if there are none."""
    products = _products(program)
    first = products[0].swapped if swap else products[0]
    aligned = [_aligned(product, first) for product in products]
    kinds = {kind_of(program, product) for product in aligned}
    if len(kinds) > 1:
        raise Refusal("types", f"products of {', '.join(sorted(kinds))} in one kernel")
    kept = {*first.rows, *first.columns, *first.batch}
    for node in program.nodes:
        if isinstance(node.op, Store) and set(node.axes) != kept:
            raise Refusal("stores", f"an output over {node.axes} beside products over {kept}")
    rows = memory_order(program, first.a, first.rows)
    columns = memory_order(program, first.b, first.columns)
    walked = _walk_order(program, products, products[0].over)
    return Roles(program, tuple(aligned), (), rows, columns, walked, (), first.batch)


def _products(program: Program) -> list[Product]:
    found = []
    for position, node in enumerate(program.nodes):
        if not is_reduction(node):
            continue
        product = product_of(program, position)
        if product is None or not for_tensor_cores(program, product):
            raise Refusal("reduction", f"node {position} is a reduction beside products")
        if any(depends_on_reduction(program, x) for x in (product.a, product.b)):
            raise Refusal("chain", f"an operand of product {position} is made of a reduction")
        found.append(product)
    if not found:
        raise Refusal("product", "no product of matrices that tensor cores compute")
    return found


def _aligned(product: Product, first: Product) -> Product:
    """The product with its rows where those of `first` are."""
    if set(product.rows) != set(first.rows):
        product = product.swapped
    same = set(product.rows) == set(first.rows) and set(product.columns) == set(first.columns)
    if not same or set(product.over) != set(first.over):
        raise Refusal("loops", "products over different axes in one kernel")
    return product


def _walk_order(
    program: Program, products: list[Product], over: tuple[str, ...]
) -> tuple[str, ...]:
    """Summed axes as they lie in the first operand that is loaded, else as the first is made.

    The same whichever operand lies along the rows. Tiles are of the last one, so that those come
    first along which the operand does not vary (parts of numbers), and, where nothing is copied as
    it lies, those that are shorter than a step of the instructions: a step of three points out of
    sixteen would be computed, stored and multiplied for nothing. Where the operand goes by a list,
    the last one is an axis along which lines of either lie."""
    operands = [x for product in products for x in (product.a, product.b)]
    loaded = [x for x in operands if isinstance(program.nodes[x].op, Load)]
    operand = (loaded or operands)[0]
    varies = program.nodes[operand].axes
    lines = _lines(program, operands) if index_axes(program, operand) else set[str]()

    def inward(axis: str) -> tuple[bool, bool, bool]:
        return axis in varies, axis in lines, bool(loaded) or program.axes[axis] >= STEP

    return tuple(sorted(memory_order(program, operand, over), key=inward))


def _lines(program: Program, operands: list[int]) -> set[str]:
    """The axes along which neighbours in memory are those of an operand."""
    ops = [largest_load(program, operand) for operand in operands]
    return {axis for op in ops if op and op.index for axis, c in op.index[-1].terms if c == 1}
