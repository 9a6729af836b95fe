"""Sums of products: their operands and axes, and what tensor cores and TMA ask of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.dtypes import dtype_of, whole_range
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Contract, Reduce
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.prelude.families import MMA_KINDS

MAP_RANK = 5
WHOLE_LINES = 128  # bytes that parts of an innermost dimension are multiples of
STRIDE_UNIT = 16  # bytes that strides of a tensor map are multiples of
MAX_STRIDE = 1 << 40
SIMPLE = ("add", "sub", "mul", "min", "max", "shr", "bitand")  # functions of told indices
BY_NUMBERS = ("floordiv", "mod")  # and those by a number above 0
HELD = 576  # points of a summed axis that stay in shared memory


@dataclass(frozen=True, slots=True)
class Product:
    """sum over `over` of a * b; `rows` are axes of a alone, `columns` of b alone."""

    position: int
    a: int
    b: int
    over: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    batch: tuple[str, ...]

    @property
    def swapped(self) -> Product:
        """The same with its operands exchanged."""
        return Product(
            self.position, self.b, self.a, self.over, self.columns, self.rows, self.batch
        )


def product_of(program: Program, position: int) -> Product | None:
    """A contract, or a sum over products, as a Product; None for anything else."""
    return _products(program)[position]


@lru_cache(maxsize=512)
def _products(program: Program) -> tuple[Product | None, ...]:
    return tuple(_product_at(program, position) for position in range(len(program.nodes)))


def _product_at(program: Program, position: int) -> Product | None:
    node = program.nodes[position]
    operands: tuple[int, ...] = ()
    if isinstance(node.op, Contract):
        operands = node.args
    elif isinstance(node.op, (Reduce, Carry)) and node.op.kind == "sum":
        body = program.nodes[node.args[0]]
        if isinstance(body.op, Map) and body.op.function == "mul":
            operands = body.args
    if len(operands) != 2:
        return None
    a, b = operands
    over = reduced_axes(node)
    left, right = program.nodes[a].axes, program.nodes[b].axes
    both = set(left) & set(right)
    if not set(over) <= {*left, *right} or not both & {*over}:
        return None
    rows = tuple(x for x in left if x not in right and x not in over)
    columns = tuple(x for x in right if x not in left and x not in over)
    batch = tuple(x for x in left if x in right and x not in over)
    return Product(position, a, b, over, rows, columns, batch)


def kind_of(program: Program, product: Product) -> str:
    """What instructions call the types of a product's operands: one name, or both."""
    a, b = (program.nodes[operand].dtype for operand in (product.a, product.b))
    return a if a == b else a + b


def for_tensor_cores(program: Program, product: Product) -> bool:
    """Whether types and axes are those of a matrix product that tensor cores compute."""
    wide = program.nodes[product.position].dtype in ("f32", "i32")
    fits = kind_of(program, product) in MMA_KINDS and wide
    return bool(fits and product.rows and product.columns)


def runs_along_batches(program: Program, operand: int, product: Product) -> bool:
    """Whether neighbours in memory belong to different products of a batch: no tile has lines."""
    op = program.nodes[operand].op
    if not isinstance(op, Load) or not op.index:
        return False
    inner = {axis for axis, _ in op.index[-1].terms if program.axes[axis] > 1}
    return bool(inner) and inner <= {*product.batch}


def depends_on_reduction(program: Program, position: int) -> tuple[int, ...]:
    """Reductions that a value is made of, through maps and casts (not through loads)."""
    return _reductions_behind(program)[position]


@lru_cache(maxsize=256)
def _reductions_behind(program: Program) -> tuple[tuple[int, ...], ...]:
    """Of each value the nearest reductions behind it, or itself."""
    found: list[tuple[int, ...]] = []
    for position, node in enumerate(program.nodes):
        behind = {source for arg in node.args for source in found[arg]}
        found.append((position,) if is_reduction(node) else tuple(sorted(behind)))
    return tuple(found)


def summed_order(program: Program, product: Product) -> tuple[str, ...]:
    """The axes of more than one point that a product sums, outermost first, as they lie in the
    loaded operand that has most of them."""

    def own(operand: int) -> tuple[str, ...]:
        axes = program.nodes[operand].axes
        mine = tuple(x for x in product.over if x in axes and program.axes[x] > 1)
        return memory_order(program, operand, mine)

    loads = [x for x in (product.a, product.b) if isinstance(program.nodes[x].op, Load)]
    return max(map(own, loads), key=len, default=product.over)


def copy_problem(
    program: Program, position: int, dimensions: Sequence[tuple[Index, int]] = ()
) -> str:
    """Why TMA cannot copy a load's tiles; empty if it can.

    `dimensions`: how the tensor's are seen, if not one by one.
    """
    op = program.nodes[position].op
    if not isinstance(op, Load):
        return "it is computed"
    spec = program.scope.tensors[op.tensor]
    dimensions = dimensions or tuple(zip(op.index, spec.shape, strict=True))
    if len(dimensions) > MAP_RANK:
        dimensions = [one for one in dimensions if not is_one_point(program.axes, *one)]
    if not 1 <= len(dimensions) <= MAP_RANK:
        return f"it has {len(dimensions)} dimensions; a tensor map has up to {MAP_RANK}"
    if op.fill not in (None, 0.0):
        return f"it reads {op.fill} outside; TMA fills with zero"
    problem = lookup_problem(program, position, op)
    if problem:
        return problem
    axes = [axis for index, _ in dimensions for axis, _ in index.terms]
    if len(set(axes)) != len(axes):
        return "an axis indexes two of its dimensions"
    last, size = dimensions[-1][0], dtype_of(spec.dtype).bytes
    plain = [axis for axis, coefficient in last.terms if coefficient == 1]
    if len(plain) != 1:
        return "its innermost dimension is not one plain axis"
    if last.constant and program.axes[plain[0]] * size % WHOLE_LINES:
        return "lines of 128 bytes reach beyond the part of its innermost dimension that is read"
    for step in (last.constant, *(c for a, c in last.terms if c != 1 and program.axes[a] > 1)):
        if step * size % STRIDE_UNIT:
            return f"a copy begins {step * size} bytes further; {STRIDE_UNIT} at a time it may"
    stride = size
    for _, extent in reversed(dimensions[1:]):
        stride *= extent
        if stride % STRIDE_UNIT or stride >= MAX_STRIDE:
            return f"a stride of {stride} bytes; it must be a multiple of {STRIDE_UNIT}"
    return ""


def mapped(spec: TensorSpec) -> tuple[int, ...]:
    """The dimensions of an output that a tensor map has: all, or those of more than one point."""
    dims = tuple(range(len(spec.shape)))
    return dims if len(dims) <= MAP_RANK else tuple(d for d in dims if spec.shape[d] > 1)


def is_one_point(extents: Mapping[str, int], index: Index, extent: int) -> bool:
    """Whether a dimension has one point, which is all that is read of it: a tensor map may lack
    it."""
    inside = index.gather is None and not index.constant
    return extent == 1 and inside and all(extents[axis] == 1 for axis, _ in index.terms)


def told_index(program: Program, load: int, gather: int) -> int | None:
    """The value that tells an index of a load: whole numbers that are read at places that are told
    themselves, coordinates, and what simple functions make of them; None for any other."""
    position = program.nodes[load].args[gather]
    return position if _is_told(program, position) else None


def _is_told(program: Program, position: int) -> bool:
    node = program.nodes[position]
    if dtype_of(node.dtype).kind not in ("int", "uint"):
        return False
    if isinstance(node.op, Load):
        return node.op.fill is None and all(_is_told(program, arg) for arg in node.args)
    if isinstance(node.op, Iota | Constant):
        return True
    if isinstance(node.op, Cast):
        return _widens(program.nodes[node.args[0]].dtype, node.dtype) and _is_told(
            program, node.args[0]
        )
    if not isinstance(node.op, Map):
        return False
    last = program.nodes[node.args[-1]].op
    by_number = isinstance(last, Constant) and last.value > 0 and node.op.function in BY_NUMBERS
    simple = node.op.function in SIMPLE or by_number
    return simple and all(_is_told(program, arg) for arg in node.args)


def _widens(source: str, dtype: str) -> bool:
    """Whether a cast between integers keeps every value."""
    if any(dtype_of(name).kind not in ("int", "uint") for name in (source, dtype)):
        return False
    (least, most), (low, high) = whole_range(source), whole_range(dtype)
    return low <= least and most <= high


def lookup_problem(program: Program, position: int, op: Load) -> str:
    """Why TMA cannot copy tiles at indices that another tensor holds; empty if it can.

    It can where a tile has one of these: they vary along batches of the products that it feeds, or
    along what is walked point by point.
    """
    gathers = [index.gather for index in op.index if index.gather is not None]
    told = [told_index(program, position, gather) for gather in gathers]
    if not told:
        return ""
    axes = {axis for index in told if index is not None for axis in program.nodes[index].axes}
    if None in told:
        return "it is indexed by a computed tile"
    every = [
        product
        for number, node in enumerate(program.nodes)
        if is_reduction(node) and (product := product_of(program, number))
    ]
    products = [product for product in every if _feeds(program, position, product)]
    walks = [_walk_of(program, product, every) for product in products]
    if not products or not all(_is_one_point(program, position, axes, *walk) for walk in walks):
        return f"it is indexed by another tensor along {', '.join(sorted(axes))}"
    return ""


def _feeds(program: Program, position: int, product: Product) -> bool:
    """Whether an operand of a product is a load, or made of it point by point."""
    made = program.behind((product.a, product.b), lambda here: is_reduction(program.nodes[here]))
    return position in made


def _walk_of(
    program: Program, product: Product, every: Sequence[Product]
) -> tuple[set[str], set[str]]:
    """What a kernel walks along for a product, and its batches: it walks along what is summed, or
    along what the product sums over that this one is an operand of, if these are its columns."""
    for outer in every:
        made = (depends_on_reduction(program, operand) for operand in (outer.a, outer.b))
        if any(product.position in sources for sources in made):
            batch = {*product.batch, *outer.batch}
            sides = ({*side} - batch for side in (product.columns, product.rows))
            return {*outer.over} if {*outer.over} in sides else set(), batch
    return {*product.over}, {*product.batch}


def _is_one_point(
    program: Program, position: int, axes: set[str], walk: set[str], batch: set[str]
) -> bool:
    """Whether tiles of a product's operand have one point of axes: its batches, and those around
    the one along which it is walked, where whatever goes along one of these goes along all."""
    around = axes - batch
    if not around:
        return True
    plain = {
        axis for index in _indices(program, position) for axis, factor in index.terms if factor == 1
    }
    inside = walk - around
    alone = all(
        product_of(program, number) is not None or walk == {*reduced_axes(node)}
        for number, node in enumerate(program.nodes)
        if is_reduction(node) and around & {*reduced_axes(node)}
    )
    return alone and around <= walk and bool(inside) and inside <= plain


def _indices(program: Program, position: int) -> tuple[Index, ...]:
    op = program.nodes[position].op
    return op.index if isinstance(op, Load) else ()


def volume(program: Program, axes: tuple[str, ...]) -> int:
    return prod(program.axes[axis] for axis in axes)


def is_elementwise(program: Program, position: int) -> bool:
    return isinstance(program.nodes[position].op, (Map, Cast))


def loads_of(program: Program, position: int) -> tuple[int, ...]:
    """The loads that a value is made of."""
    found, pending = set[int](), [position]
    while pending:
        here = pending.pop()
        if here not in found:
            found.add(here)
            pending.extend(program.nodes[here].args)
    return tuple(sorted(p for p in found if isinstance(program.nodes[p].op, Load)))


def largest_load(program: Program, position: int) -> Load | None:
    """The load with most axes among those that a value is made of."""
    nodes = [program.nodes[load] for load in loads_of(program, position)]
    found = max(nodes, key=lambda node: len(node.axes), default=None)
    return found.op if found is not None and isinstance(found.op, Load) else None


def memory_order(program: Program, position: int, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes in the order of the dimensions that a value is loaded from; others last, but for those
    that the value itself has ahead of these."""
    op, own = largest_load(program, position), program.nodes[position].axes
    order = [axis for index in op.index for axis, _ in index.terms] if op else []
    ahead = own[: next((n for n, axis in enumerate(own) if axis in order), 0)]
    places = {axis: number for number, axis in reversed([*enumerate(order)])}
    places |= dict.fromkeys(ahead, -1)
    return tuple(sorted(axes, key=lambda axis: places.get(axis, len(order))))


def loads_of_factors(program: Program) -> tuple[Load, ...]:
    """The loads that factors of products are made of, but for those behind sums."""
    factors = [arg for node in program.nodes if isinstance(node.op, Contract) for arg in node.args]
    behind = program.behind(factors, lambda p: isinstance(program.nodes[p].op, Contract | Reduce))
    return tuple(op for p in behind if isinstance(op := program.nodes[p].op, Load))
