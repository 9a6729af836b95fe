"""What the axes of a kernel on tensor cores are: rows, columns, walked, held whole, batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.handed import Handed, all_handed
from ir.narrow_parts import STEPWISE
from ir.ops.base import Op
from ir.ops.load import Index, Load
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.added import whole_of
from ir.targets.cuda.build.begins import Begin, begin_of
from ir.targets.cuda.build.computed import (
    Walk,
    dimensions_of,
    find_walk,
    large_loads,
    raw_loads,
    walked_order,
)
from ir.targets.cuda.build.folds import folded_axes
from ir.targets.cuda.build.products import (
    MAP_RANK,
    Product,
    depends_on_reduction,
    for_tensor_cores,
    kind_of,
    memory_order,
    product_of,
    volume,
)
from ir.targets.cuda.build.role_rules import WIDEST, check_axes, check_walks, is_loaded
from ir.targets.cuda.prelude.families import WGMMA_KINDS

LONGEST_LINE = 256  # bytes of a sum that a block has whole
_SHORT = 32  # points of an axis of which blocks are too few


@dataclass(frozen=True)
class Roles:
    """`outer` products are summed over the walked axes; `inner` ones are fresh in every block.

    All have the same rows. Columns of inner products are the walked axes. `computed` are operands
    along the rows that are made of loads in registers. Outer products begin anew at each point of
    the `folded` axes, the first of the walked ones, along which threads reduce what they make of
    them. Sums of the outer one may begin with what another product comes to (`begins`). Where they
    are a state that is `handed` on, its axis is the first of the walked ones; at each of its points
    the state is scaled, added to and stored.
    """

    program: Program
    outer: tuple[Product, ...]
    inner: tuple[Product, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    walked: tuple[str, ...]
    held: tuple[str, ...]
    batch: tuple[str, ...]
    computed: frozenset[int] = frozenset()
    folded: tuple[str, ...] = ()
    begins: tuple[Begin, ...] = ()
    handed: Handed | None = None

    @property
    def around(self) -> tuple[str, ...]:
        """The first of the walked axes, at each point of which something is made of the sums."""
        return self.folded or (() if self.handed is None else (self.handed.axis,))

    def inside(self, tiles: Mapping[str, int]) -> int:
        """Blocks of such tiles for each point of these."""
        axes = (axis for axis in self.walked if axis not in self.around)
        return prod(-(-self.program.axes[axis] // tiles[axis]) for axis in axes)

    @property
    def products(self) -> tuple[Product, ...]:
        """All of them, those first that a tile begins with."""
        return (*(begin.product for begin in self.begins), *self.inner, *self.outer)

    @cached_property
    def added(self) -> int | None:
        """The value that the outer products are added up to in the registers of one."""
        if self.folded or self.begins:
            return None
        if not self.inner and volume(self.program, self._remembered) > STEPWISE:
            return None
        return whole_of(self.program, tuple(product.position for product in self.outer))

    @cached_property
    def scores(self) -> int | None:
        """The value that inner products are added up to in the registers of one."""
        return whole_of(self.program, tuple(product.position for product in self.inner))

    @property
    def _remembered(self) -> tuple[str, ...]:
        """What is summed, but for the axis along which a state forgets what it was."""
        forgets = self.handed is not None and self.handed.factor is not None
        return tuple(a for a in self.outer[0].over if not forgets or a not in self.around)

    @property
    def sums(self) -> tuple[int, ...]:
        """The values that tiles of sums are of: each outer product's, or what they are added to."""
        if self.added is not None:
            return (self.added,)
        return tuple(product.position for product in self.outer)

    @cached_property
    def dtype(self) -> str:
        """Type of the outer products' operands."""
        return self.dtype_of(self.outer[0])

    def dtype_of(self, product: Product) -> str:
        """Type of a product's operands: a chain's inner ones may have another than the outer."""
        return self.program.nodes[product.a].dtype

    def kind_of(self, product: Product) -> str:
        """What instructions call the types of a product's operands."""
        return kind_of(self.program, product)

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """Walked axes inside the main one that every tile has whole."""
        return self.walk.whole

    @property
    def main_walk(self) -> str:
        """The walked axis of which tiles are a choice; those around it go point by point."""
        return self.walk.main

    @cached_property
    def listed(self) -> str:
        """The walked axis around the main one of which a block may have several points: in a chain
        one along which all that is copied differs by an index alone (pages, listed blocks), so that
        they are copied one by one, or that is a dimension of it; in a product one beside a main
        axis that no whole steps of the instruction divide (rows of an image). Empty if there is
        none."""
        if len(self.walked) < 2:
            return ""
        axis, program = self.walked[-2], self.program
        if not self.inner:
            return axis if self._in_rows(axis) else ""
        loads = [product.b for product in self.products if axis in program.nodes[product.b].axes]
        ops = [program.nodes[load].op for load in loads]
        main = self.walked[-1]
        fine = all(_counts_alone(op, axis) and _lies_around(op, axis, main) for op in ops)
        return axis if loads and fine else ""

    def _in_rows(self, axis: str) -> bool:
        """Whether blocks have to be made of several rows of the main axis, and may be."""
        if self.computed or self.around or self.begins:
            return False
        main, extents = self.walked[-1], self.program.axes
        loads = [x for product in self.products for x in (product.a, product.b)]
        ops = [op for x in loads if isinstance(op := self.program.nodes[x].op, Load)]
        if extents[main] % WGMMA_KINDS[self.dtype].k == 0 or len(ops) < len(loads):
            return False
        plain = all(
            any((name, 1) in index.terms for index in op.index[:-1])
            for op in ops
            for name in (axis, main)
        )
        return plain and not self.ends_outside(main)

    def ends_outside(self, axis: str) -> bool:
        """Whether what lies behind a walked axis' end is outside every tensor: where it goes along
        a dimension alone, from its start on, a copy knows how far that is read."""
        operands = (x for product in self.products for x in (product.a, product.b))
        indices = (
            dimension.index
            for x in operands
            if isinstance(self.program.nodes[x].op, Load)
            for dimension in dimensions_of(self.program, x, self.walk)
        )
        return all(self._goes_alone(one, axis) for one in indices if axis in dict(one.terms))

    def _goes_alone(self, index: Index, axis: str) -> bool:
        others = [name for name, _ in index.terms if name != axis and self.program.axes[name] > 1]
        return not others and not index.constant and (axis, 1) in index.terms

    @cached_property
    def contiguous_columns(self) -> bool:
        """Whether the tile of some product's b, also of what sums begin with, is contiguous along
        the columns."""
        products = (*self.outer, *(begin.product for begin in self.begins))
        ops = (self.program.nodes[product.b].op for product in products)
        loads = [op for op in ops if isinstance(op, Load)]
        return any(axis in self.columns for op in loads for axis, _ in op.index[-1].terms)

    @cached_property
    def at_once(self) -> bool:
        """Whether a block has all that products sum between two points of the folded axes, so that
        an operand that does not vary along these is there for the whole walk."""
        inside = [axis for axis in self.walked if axis not in self.folded]
        line = volume(self.program, tuple(inside)) * dtype_of(self.dtype).bytes
        return bool(self.folded) and len(inside) == 1 and line <= LONGEST_LINE

    @cached_property
    def walk(self) -> Walk:
        if not self.computed:
            return Walk(self.walked[-1], ())
        loads = [load for x in sorted(self.computed) for load in large_loads(self.program, x)]
        loads += [product.b for product in self.outer]
        walked = tuple(axis for axis in self.walked if axis not in self.around)
        return find_walk(self.program, walked, loads)

    @cached_property
    def raw(self) -> tuple[int, ...]:
        """Loads of the computed operands that wait in shared memory."""
        found = [
            load
            for position in sorted(self.computed)
            for load in raw_loads(self.program, position, self.rows, self.walk)
        ]
        return tuple(dict.fromkeys(found))


def _lies_around(op: Op, axis: str, main: str) -> bool:
    """Whether a load has a dimension along an axis outside of those along the main one, if it has
    both: several points of the axis are copied one after the other."""
    if not isinstance(op, Load):
        return True
    along = [
        [n for n, index in enumerate(op.index) if name in dict(index.terms)]
        for name in (axis, main)
    ]
    return not all(along) or max(along[0]) < min(along[1])


def _counts_alone(op: Op, axis: str) -> bool:
    """Whether an axis is a dimension of a load by itself, or none."""
    terms = [index.terms for index in op.index] if isinstance(op, Load) else []
    with_it = [one for one in terms if axis in dict(one)]
    return isinstance(op, Load) and with_it in ([], [((axis, 1),)])


@lru_cache(maxsize=512)
def find_roles(program: Program, swap: bool, registers: bool = False) -> Roles:
    """Roles of the axes, with operands exchanged if `swap`; Refusal if there are none.

    With `registers`, an operand may be computed of loads.
    """
    found = {}
    for position, node in enumerate(program.nodes):
        product = product_of(program, position) if is_reduction(node) else None
        if product is not None and for_tensor_cores(program, product):
            found[position] = product
    if not found:
        raise Refusal("product", "no product of matrices that tensor cores compute")
    begins = _begins(program, found)
    inner = [p for p in found.values() if _feeds_product(program, p.position, found)]
    outer = [p for p in found.values() if p not in inner]
    if inner and swap:
        raise Refusal("swap", "chained products keep their rows")
    outer = [_oriented(program, p, swap, registers) for p in outer]
    folded = () if inner else _folded(program, outer)
    state = _handed(program, outer, inner)
    around = folded if state is None else (state.axis,)
    outer = [_walked_along(p, around) for p in outer]
    outer = [_with_rows(p, outer[0].rows) for p in outer]
    apart = _columns_apart(program, outer[0]) if inner else _columns_beside(program, outer[0])
    apart += _rows_beside(outer[0], inner)
    apart = tuple(dict.fromkeys((*apart, *_left_out(program, found.values()))))
    outer = [_batched(p, apart) for p in outer]
    inner = [_with_rows(_batched(p, outer[0].batch), outer[0].rows) for p in inner]
    begins = tuple(
        replace(one, product=_batched(_with_rows(one.product, outer[0].rows), apart))
        for one in begins
    )
    walked = outer[0].over
    columns = outer[0].columns
    computed = _computed(program, outer) if registers and not inner else frozenset()
    if begins and (len(outer) > 1 or around):
        raise Refusal("begins", "several sums, or sums that begin anew, begin with nothing")
    if computed and folded:
        raise Refusal("registers", "computed operands of products that begin anew")
    if computed and swap:
        raise Refusal("swap", "computed operands keep their rows")
    check_axes(program, outer, inner, walked, columns, computed, around if state else ())
    rows = _in_memory_order(program, outer[0].rows, inner or outer)
    held = tuple(dict.fromkeys(a for p in (*inner, *(b.product for b in begins)) for a in p.over))
    batch = tuple(a for a in outer[0].batch)
    if computed:
        walked = walked_order(program, outer[0], walked)
        rows = memory_order(program, min(computed), rows)
    else:
        walked = _walked_in_memory_order(program, inner, outer, swap)
    walked = (*around, *(axis for axis in walked if axis not in around))
    columns = _operand_order(program, outer[0].b, columns)
    roles = Roles(
        program, tuple(outer), tuple(inner), rows, columns, walked, held, batch, computed, folded,
        begins, state,
    )  # fmt: skip
    check_walks(roles)
    if state is not None and len(roles.sums) > 1:
        raise Refusal("handed", "a state is in the registers of one sum")
    return roles


def _walked_in_memory_order(
    program: Program, inner: list[Product], outer: list[Product], swap: bool
) -> tuple[str, ...]:
    """The axes that the first product reduces over, a chain's longest last."""
    first = outer[0]
    walked = _walk_order(program, first.swapped if swap else first, first.over)
    return _longest_last(program, walked, outer + inner) if inner else walked


def _begins(program: Program, found: dict[int, Product]) -> tuple[Begin, ...]:
    """What sums begin with; those products are not `found` any more."""
    ends = [position for position in found if not _feeds_product(program, position, found)]
    begins = [begin for position in ends if (begin := begin_of(program, position)) is not None]
    begins = [begin for begin in begins if begin.product.position in found]
    for begin in begins:
        found.pop(begin.product.position, None)
    return tuple(begins)


def _computed(program: Program, outer: list[Product]) -> frozenset[int]:
    """First operands of products that registers can hold, computed of loads."""
    return frozenset(
        product.a
        for product in outer
        if not is_loaded(program, product.a) and not depends_on_reduction(program, product.a)
    )


def _feeds_product(program: Program, position: int, found: dict[int, Product]) -> bool:
    for product in found.values():
        for operand in (product.a, product.b):
            if position in depends_on_reduction(program, operand):
                return True
    return False


def _oriented(program: Program, product: Product, swap: bool, registers: bool) -> Product:
    """The product with its computed operand, if it has one, as `a`."""

    def computed(operand: int) -> bool:
        made = registers and not is_loaded(program, operand)
        return made or bool(depends_on_reduction(program, operand))

    left, right = computed(product.a), computed(product.b)
    if left and right:
        raise Refusal("operands", "both operands of a product are computed")
    return product.swapped if right or (swap and not left) else product


def _with_rows(product: Product, rows: tuple[str, ...]) -> Product:
    if set(product.rows) == set(rows):
        return product
    if set(product.columns) == set(rows):
        return product.swapped
    raise Refusal("rows", f"products over rows {product.rows} and {rows}")


def _folded(program: Program, outer: list[Product]) -> tuple[str, ...]:
    """The axes along which what is made of all these products is folded."""
    found = {folded_axes(program, product.position) for product in outer}
    return next(iter(found)) if len(found) == 1 else ()


def _handed(program: Program, outer: list[Product], inner: list[Product]) -> Handed | None:
    """The state that the sums are, if one is handed on; Refusal beside anything else."""
    found = all_handed(program)
    if not found:
        return None
    if inner or len(found) > 1 or tuple(p.position for p in outer) != found[0].products:
        raise Refusal("handed", "a state is handed on by all products of its kernel")
    return found[0]


def _walked_along(product: Product, folded: tuple[str, ...]) -> Product:
    """The product with the folded axes among those it is walked along."""
    rows, columns, batch = (
        tuple(axis for axis in axes if axis not in folded)
        for axes in (product.rows, product.columns, product.batch)
    )
    if folded and not (rows and columns):
        raise Refusal("rows", f"nothing but {', '.join(folded)} is on one side of a product")
    over = (*folded, *product.over)
    return replace(product, over=over, rows=rows, columns=columns, batch=batch)


def _left_out(program: Program, products: Iterable[Product]) -> tuple[str, ...]:
    """Axes of one point, where a tensor map has no room for them: no tile may have more."""
    operands = (x for product in products for x in (product.a, product.b))
    ops = [program.nodes[operand].op for operand in operands]
    if all(len(op.index) <= MAP_RANK for op in ops if isinstance(op, Load)):
        return ()
    return tuple(axis for axis, extent in program.extents if extent == 1)


def _columns_apart(program: Program, product: Product) -> tuple[str, ...]:
    """The outermost columns of a chain's product that blocks of their own have, so that one has no
    more than its registers hold."""
    columns = _operand_order(program, product.b, product.columns)
    count = 0
    while count < len(columns) - 1 and volume(program, columns[count:]) > WIDEST:
        count += 1
    return columns[:count]


def _rows_beside(outer: Product, inner: list[Product]) -> tuple[str, ...]:
    """Rows of a chain's last product that those of its inner ones vary along which are walked: a
    block has one point of them."""
    sides = [side for product in inner for side in (product.rows, product.columns)]
    walked = [side for side in sides if {*outer.over} & {*side}]
    return tuple(axis for axis in outer.rows if any(axis in side for side in walked))


def _columns_beside(program: Program, product: Product) -> tuple[str, ...]:
    """The columns of a product beside those that a later reduction sums, of which a tile has all;
    and what is strided. A tile has one point of them."""
    later = (n for number, n in enumerate(program.nodes) if number != product.position)
    summed = {axis for node in later if is_reduction(node) for axis in reduced_axes(node)}
    columns = {*product.columns}
    beside = tuple(a for a in product.columns if a not in summed) if columns & summed else ()
    return tuple(dict.fromkeys((*beside, *_strided(program, product))))


def _strided(program: Program, product: Product) -> tuple[str, ...]:
    """Axes that go along one dimension of an operand in steps, beside another of the same side: a
    tile has one point of them."""
    found: list[str] = []
    for operand, side in ((product.a, product.rows), (product.b, product.columns)):
        op = program.nodes[operand].op
        for index in op.index if isinstance(op, Load) else ():
            terms = [(axis, factor) for axis, factor in index.terms if axis in side]
            found += [axis for axis, factor in terms if len(terms) > 1 and factor != 1]
    return tuple(found)


def _batched(product: Product, batch: tuple[str, ...]) -> Product:
    """The product with what others have as a batch as a batch of its own: along such an axis one
    of its factors does not vary."""
    rows, columns = (
        tuple(axis for axis in side if axis not in batch)
        for side in (product.rows, product.columns)
    )
    both = {*product.rows, *product.columns}
    shared = tuple(axis for axis in batch if axis in both)
    return replace(product, rows=rows, columns=columns, batch=(*product.batch, *shared))


def _operand_order(program: Program, position: int, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes in the order of a load's dimensions, those first that none of them has."""
    op = program.nodes[position].op
    if not isinstance(op, Load):
        return axes
    order = [axis for index in op.index for axis, _ in index.terms]
    return tuple(sorted(axes, key=lambda axis: order.index(axis) if axis in order else -1))


def _in_memory_order(
    program: Program, rows: tuple[str, ...], products: list[Product]
) -> tuple[str, ...]:
    for product in products:
        operand = product.a if set(product.rows) == set(rows) else product.b
        if isinstance(program.nodes[operand].op, Load):
            return _operand_order(program, operand, rows)
    return rows


def _longest_last(
    program: Program, walked: tuple[str, ...], products: list[Product]
) -> tuple[str, ...]:
    """Axes of a chain's blocks, which are of the last one: a short one (heads that share keys) goes
    point by point, where the longest is a dimension of all that is copied."""
    longest = max(walked, key=lambda axis: program.axes[axis])
    if len(walked) < 2 or program.axes[walked[-1]] >= _SHORT:
        return walked
    for load in (x for product in products for x in (product.a, product.b)):
        node = program.nodes[load]
        told = any(longest in program.nodes[arg].axes for arg in node.args)
        if isinstance(node.op, Load) and (told or not _counts_alone(node.op, longest)):
            return walked
    return (*(axis for axis in walked if axis != longest), longest)


def _walk_order(program: Program, product: Product, over: tuple[str, ...]) -> tuple[str, ...]:
    operand = product.a if isinstance(program.nodes[product.a].op, Load) else product.b
    return _operand_order(program, operand, over)
