"""Kernel partition: programs that one launch each computes, joined by tensors.

A kernel holds one tile of its outputs and has one nest of main loops. What would be computed again
for every tile of a later product, or needs whole rows of an earlier one, goes through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ir.builder import Graph
from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.store import Store
from ir.program import LONGEST_NAME, Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.begins import begin_of
from ir.targets.cuda.build.boundaries import alike, boundary_of
from ir.targets.cuda.build.compared import computed_once, refuse_again
from ir.targets.cuda.build.computed import (
    by_stride,
    fetch_problem,
    find_walk,
    large_loads,
    register_problem,
)
from ir.targets.cuda.build.epilogues import by_epilogues, shares_product
from ir.targets.cuda.build.folds import folded_axes, in_one_tile
from ir.targets.cuda.build.orders import is_for_tensor_cores, order_between
from ir.targets.cuda.build.outputs import outputs_alongside, reductions_behind, store_groups
from ir.targets.cuda.build.products import (
    MAP_RANK,
    STRIDE_UNIT,
    Product,
    copy_problem,
    depends_on_reduction,
    for_tensor_cores,
    product_of,
    runs_along_batches,
    volume,
)
from ir.targets.cuda.build.statistics import with_statistics
from ir.targets.cuda.build.twins import twins_of
from ir.tiles import Tile

WGMMA, MMA, FMA = "wgmma", "mma", "fma"  # what computes the products of matrices
FORMED = "wgmma_formed"  # wgmma with operands that other threads make in shared memory
CHAINED = "mma_chained"  # mma.sync where products are made of each other
RS = "wgmma_rs"  # wgmma with an operand that its threads compute in registers
WHOLE = 256  # longest reduction that a kernel repeats for every block of a later one
ROW = 1 << 14  # of a row that a block has to itself, and sums across rows beside


@dataclass(frozen=True, slots=True)
class Cut:
    """A node that goes through memory: its tensor, one axis per dimension, the last one padded."""

    node: int
    spec: TensorSpec
    axes: tuple[str, ...]


@lru_cache(maxsize=1024)
def cut_program(
    program: Program, everywhere: bool = False, engine: str = WGMMA,
    taken: frozenset[str] = frozenset(), joined: bool = False, alone: bool = False,
    chained: bool = False, held: int = WHOLE, beside: bool = False, together: bool = False,
    sharing: bool = False, across: bool = False,
) -> tuple[Program, ...]:  # fmt: skip
    """Kernels in order of execution. With `everywhere`, every reduction has its own; if `joined`,
    outputs that share one have a kernel even where some vary along fewer axes, and if `beside`,
    outputs of what is reduced have the kernel of those over all of its points. Products stand
    `alone` if what is reduced beside them goes through memory, if `sharing` but for what is reduced
    of a product that they are made of. If `chained`, those that meet on the way to another product
    stay together, whatever they sum over. `held`: the longest sum of a product that another one is
    made of. If `across`, sums across rows have a kernel with the sums of rows that they are made
    of, where a block has room for such a row. If `together`, reductions of the same rows have one
    kernel, and a product has what is made of it point by point, and what else is reduced of a
    product that it is made of.

    What `engine` cannot take as it is goes through memory, by names that are not `taken`.
    """
    rows = ROW if beside or across else WHOLE
    boundaries = (
        set[int]()
        if everywhere
        else _boundaries(program, engine, alone, chained, held, rows, sharing)
    )
    names = taken | {spec.name for spec in program.tensors}

    def cut(nodes: set[int]) -> tuple[Program, ...]:
        groups = [[node] for node in sorted(nodes)]
        if together:
            groups = with_statistics(program, by_epilogues(program, nodes))
        cuts = [[_cut(program, node, names) for node in group] for group in groups]
        return tuple(_kernels(program, cuts, joined, beside))

    return computed_once(_every(program) if everywhere else boundaries, cut)


def stored_at(
    program: Program, nodes: set[int], taken: frozenset[str] = frozenset(), padded: bool = True
) -> tuple[Program, ...]:
    """Programs in order of execution, the values of `nodes` in memory between them, by names that
    are not `taken`; outputs that share a reduction stay together, and those that are reduced of
    what a kernel before reads are that one's."""

    def cut(stored: set[int]) -> tuple[Program, ...]:
        groups = with_statistics(program, [[node] for node in sorted(stored)])
        cuts = [[_cut(program, node, taken, padded) for node in group] for group in groups]
        return tuple(_kernels(program, cuts, joined=True, alongside=True))

    return computed_once(nodes, cut)


def parted_at(
    program: Program, nodes: set[int], taken: frozenset[str], beside: bool = False
) -> tuple[Program, Program]:
    """What one kernel may compute of `nodes`, which are its outputs, and what is made of them; if
    `beside`, it has the outputs that are made of nothing of them, too."""

    def cut(nodes: set[int]) -> tuple[Program, Program]:
        cuts = [_cut(program, node, taken) for node in sorted(nodes)]
        stores = _unwritten(program, cuts)
        own = [
            store for store in stores
            if beside and not nodes & reductions_behind(program, [store], frozenset())
        ]  # fmt: skip
        stores = [store for store in stores if store not in own]
        first = _rebuild(program, part_name(program, 0), {}, own, cuts)
        known = {cut.node: cut for cut in cuts}
        return first, _rebuild(program, part_name(program, 1), known, stores, [])

    return computed_once(nodes, cut)


def _unlike_products(program: Program, chained: bool, engine: str) -> set[int]:
    """Products that meet a larger one summed over other axes, beside which no kernel has them; if
    `chained`, one may have those that another product is made of. On wgmma a sum may begin with
    one."""
    found: set[int] = set()
    inner = _inner_products(program) if chained else set()
    for position in range(len(program.nodes)):
        sources = depends_on_reduction(program, position)
        products = [s for s in sources if is_for_tensor_cores(program, s)]
        if len(products) < 2 or is_reduction(program.nodes[position]) or inner >= {*products}:
            continue
        largest = max(products, key=lambda s: _multiplications(program, s))
        begin = begin_of(program, largest) if engine in (WGMMA, RS) else None
        for other in products:
            if begin is not None and other == begin.product.position:
                continue
            if not alike(program, (largest, other)):
                found.add(boundary_of(program, other))
                found.update(_reduced_with(program, sources, other, largest))
    return found


def _reduced_with(program: Program, sources: Sequence[int], product: int, largest: int) -> set[int]:
    """What is reduced of a product that another one is made of, which goes through memory as that
    does (the sum of a softmax beside its weighted values): who reads it would multiply again."""
    return {
        boundary_of(program, source)
        for source in sources
        if not is_for_tensor_cores(program, source)
        and shares_product(program, source, {product})
        and not shares_product(program, source, {largest})
    }


def _inner_products(program: Program) -> set[int]:
    """Products for tensor cores that operands of others are made of."""
    operands = {
        arg
        for position, node in enumerate(program.nodes)
        if is_for_tensor_cores(program, position)
        for arg in node.args
    }
    sources = (source for arg in operands for source in depends_on_reduction(program, arg))
    return {source for source in sources if is_for_tensor_cores(program, source)}


def _multiplications(program: Program, position: int) -> int:
    product = product_of(program, position)
    assert product is not None
    axes = (*product.batch, *product.rows, *product.columns, *product.over)
    return volume(program, axes)


def _every(program: Program) -> set[int]:
    stored = {node.args[0] for node in program.nodes if isinstance(node.op, Store)}
    return {p for p, n in enumerate(program.nodes) if is_reduction(n) and p not in stored}


def _boundaries(
    program: Program, engine: str, alone: bool, chained: bool, held: int, rows: int, sharing: bool
) -> set[int]:
    found: set[int] = _beside_products(program, sharing) if engine == MMA or alone else set()
    found |= _unlike_products(program, chained, engine) if engine != FMA else set()
    for position, node in enumerate(program.nodes):
        if not is_reduction(node):
            continue
        product = product_of(program, position)
        if product is not None and for_tensor_cores(program, product):
            found.update(_moved(program, product, engine, held))
            begin = begin_of(program, position) if engine in (WGMMA, RS) else None
            found.update(_computed_operands(program, begin.product) if begin else ())
        for other in depends_on_reduction(program, node.args[0]) + _beside(program, position):
            if _cuts_apart(program, other, position, held, engine, rows):
                found.add(boundary_of(program, other))
    return found


def _moved(program: Program, product: Product, engine: str, held: int) -> list[int]:
    """Values that an engine wants in memory before a product."""
    operands = (product.a, product.b)
    scattered = [x for x in operands if runs_along_batches(program, x, product)]
    if engine == MMA:
        found = [r for x in operands for r in depends_on_reduction(program, x)]
        return [*scattered, *(boundary_of(program, source) for source in found)]
    if engine == FMA:
        return []
    moved = [x for x in operands if x in scattered or not _stays(program, x, product.over, held)]
    kept = _computed(program, product, moved) if engine == RS else None
    if kept is not None:
        moved = [x for x in moved if x != kept and not _fetched(program, x, kept, product.over)]
    ranks = (sum(program.axes[a] > 1 for a in program.nodes[x].axes) for x in moved)
    if any(rank > MAP_RANK for rank in ranks):
        return []
    sources = depends_on_reduction(program, kept) if kept is not None else ()
    return [*moved, *(boundary_of(program, source) for source in sources)]


def _computed_operands(program: Program, product: Product) -> list[int]:
    return [x for x in (product.a, product.b) if not isinstance(program.nodes[x].op, Load)]


def _computed(program: Program, product: Product, moved: list[int]) -> int | None:
    """The largest operand that registers can hold, of those that memory would else."""
    able = [
        x for x in moved
        if not isinstance(program.nodes[x].op, Load) and not register_problem(program, product, x)
    ]  # fmt: skip
    return max(able, key=lambda x: volume(program, program.nodes[x].axes), default=None)


def _fetched(program: Program, operand: int, kept: int, over: tuple[str, ...]) -> bool:
    """Whether TMA copies the operand beside a computed one, short inner axes joined."""
    if not isinstance(program.nodes[operand].op, Load):
        return False
    loads = (operand, *large_loads(program, kept))
    walk = find_walk(program, by_stride(program, operand, over), loads)
    return not fetch_problem(program, operand, walk) and _runs_along(program, operand, over)


def _beside_products(program: Program, sharing: bool) -> set[int]:
    """Reductions that meet a product for tensor cores: those kernels hold nothing else, but for
    what is reduced of a product that it is made of if `sharing`."""
    found: set[int] = set()
    for position in range(len(program.nodes)):
        sources = depends_on_reduction(program, position)
        products = {s for s in sources if is_for_tensor_cores(program, s)}
        if products and not is_reduction(program.nodes[position]):
            others = [s for s in sources if s not in products]
            apart = [s for s in others if not (sharing and shares_product(program, s, products))]
            found.update(boundary_of(program, s) for s in apart)
    return found


def has_products(program: Program) -> bool:
    """Whether tensor cores can compute any of its products."""
    return any(
        is_for_tensor_cores(program, position)
        for position, node in enumerate(program.nodes) if is_reduction(node)
    )  # fmt: skip


def _beside(program: Program, position: int) -> tuple[int, ...]:
    node = program.nodes[position]
    return tuple(r for arg in node.args[1:] for r in depends_on_reduction(program, arg))


def _stays(program: Program, operand: int, over: tuple[str, ...], held: int) -> bool:
    """Whether tensor cores can take an operand as it is: from memory, or from a short product."""
    if not copy_problem(program, operand):
        return _runs_along(program, operand, over)
    sources = depends_on_reduction(program, operand)
    for source in sources:
        product = product_of(program, source)
        if product is not None and for_tensor_cores(program, product):
            short = volume(program, product.over) <= held
            return short and set(over) <= set(program.nodes[source].axes)
    return False


def _runs_along(program: Program, operand: int, over: tuple[str, ...]) -> bool:
    """Whether a plain operand is contiguous along an axis that its type lets it be."""
    op = program.nodes[operand].op
    assert isinstance(op, Load)
    narrow = dtype_of(program.nodes[operand].dtype).bytes == 2
    return narrow or any(axis in over for axis, _ in op.index[-1].terms)


def _cuts_apart(
    program: Program, first: int, second: int, held: int, engine: str, rows: int
) -> bool:
    """Whether reduction `second` cannot share a kernel with `first`, which it depends on. `rows`:
    the longest reduction that a kernel has beside one across it."""
    early, late = program.nodes[first], program.nodes[second]
    before, after = set(reduced_axes(early)), set(reduced_axes(late))
    product = product_of(program, first)
    heavy = product is not None and bool(product.rows and product.columns)
    if heavy and after & set(early.axes):
        assert product is not None
        if _walked_later(program, first, after):
            return volume(program, tuple(before)) > held
        kept = in_one_tile(program, product, after)
        if engine == WGMMA and after == {*folded_axes(program, first)}:
            return False
        tensor = engine != FMA and for_tensor_cores(program, product)
        return not kept or (not tensor and volume(program, tuple(before)) > WHOLE)
    if after & set(early.axes) and not before & after:
        return volume(program, tuple(before)) > rows
    body = {axis for arg in late.args for axis in program.nodes[arg].axes}
    wider = body - set(early.axes) - before  # axes for which `first` would be computed again
    own = product_of(program, second)
    return bool(wider and own is not None and own.rows and own.columns and not heavy
                and not before & after)  # fmt: skip


def has_rows_across(program: Program) -> bool:
    """Whether sums across rows are made of sums of those rows, each as long as a block has room for
    and too long to be computed again."""
    return any(
        _cuts_apart(program, first, late, WHOLE, FMA, WHOLE)
        and not _cuts_apart(program, first, late, WHOLE, FMA, ROW)
        for late, node in enumerate(program.nodes) if is_reduction(node)
        for first in depends_on_reduction(program, node.args[0])
    )  # fmt: skip


def _walked_later(program: Program, first: int, axes: set[str]) -> bool:
    """Whether a product that is made of `first` sums over `axes`: they go by block by block."""
    for position, node in enumerate(program.nodes):
        product = product_of(program, position) if is_reduction(node) else None
        if product is None or not (product.rows and product.columns and axes <= {*product.over}):
            continue
        if any(first in depends_on_reduction(program, x) for x in (product.a, product.b)):
            return True
    return False


def _cut(program: Program, position: int, taken: frozenset[str], padded: bool = True) -> Cut:
    node, axes = program.nodes[position], order_between(program, position)
    shape = [program.axes[axis] for axis in axes]
    dtype = node.dtype
    if shape and padded:
        unit = max(1, STRIDE_UNIT // dtype_of(dtype).bytes)
        shape[-1] = -(-shape[-1] // unit) * unit
    kept = _as_output(program, position, axes, tuple(shape))
    name = _free_name(taken, f"t{position}")
    return Cut(position, kept or TensorSpec(name, tuple(shape), dtype, "output"), axes)


def _as_output(
    program: Program, position: int, axes: tuple[str, ...], shape: tuple[int, ...]
) -> TensorSpec | None:
    """The output that a value is as it goes through memory, if it is one."""
    for user in program.users(position):
        op = program.nodes[user].op
        if isinstance(op, Store) and op.axes == axes:
            spec = program.scope.tensors[op.tensor]
            if (spec.shape, spec.dtype) == (shape, program.nodes[position].dtype):
                return spec
    return None


def _free_name(taken: frozenset[str], name: str) -> str:
    """`name`, or one like it that no tensor has."""
    while name in taken:
        name = f"cut_{name}"
    return name


def part_name(program: Program, number: int) -> str:
    """A part's name: the program's, short enough for what is added."""
    end = f"_{number}"
    return f"{program.name[: LONGEST_NAME - len(end)]}{end}"


def _kernels(
    program: Program, cuts: list[list[Cut]], joined: bool, beside: bool = False,
    alongside: bool = False,
) -> list[Program]:  # fmt: skip
    """`cuts`: what goes through memory, by kernels; twins are read from where the first is. If
    `alongside`, outputs that are reduced of the same as such a kernel's values are that kernel's.
    """
    known: dict[int, Cut] = {}
    found: list[Program] = []
    own = {spec.name for spec in program.tensors}
    twins = twins_of(program, [(c.node, c.axes, c.spec.name in own) for g in cuts for c in g])
    stored, beside_cuts = frozenset(c.node for group in cuts for c in group), set[int]()
    for group in cuts:
        made = [cut for cut in group if cut.node not in twins]
        if made:
            name = part_name(program, len(found))
            others = outputs_alongside(program, [c.node for c in made], stored) if alongside else []
            with_it = [store for store in others if store not in beside_cuts]
            beside_cuts |= {*with_it}
            found.append(_rebuild(program, name, known, with_it, made))
        known |= {cut.node: cut for cut in made}
        served = {c.node: known[twins[c.node]].spec for c in group if c.node in twins}
        known |= {c.node: replace(c, spec=served[c.node]) for c in group if c.node in served}
    stores = [s for s in _unwritten(program, [*known.values()]) if s not in beside_cuts]
    groups = store_groups(program, stores, joined, beside, frozenset(known))
    for number, outputs in enumerate(groups):
        whole = not cuts and not number
        name = program.name if whole else part_name(program, len(found))
        found.append(_rebuild(program, name, known, outputs, []))
    return found


def _unwritten(program: Program, cuts: list[Cut]) -> list[int]:
    """Stores of outputs that no cut is."""
    written = {cut.spec.name for cut in cuts}
    return [position for position, store in program.stores() if store.tensor not in written]


def _rebuild(
    program: Program, name: str, known: dict[int, Cut], stores: list[int], cuts: list[Cut]
) -> Program:
    """The part of `program` that computes `stores`, and the values of `cuts`."""
    roots = [*(program.nodes[store].args[0] for store in stores), *(cut.node for cut in cuts)]
    used: set[int] = set()
    pending = list(roots)
    while pending:
        here = pending.pop()
        if here in used:
            continue
        used.add(here)
        if here not in known:
            pending.extend(program.nodes[here].args)
    refuse_again(program, used, known)
    read = tuple(known[here] for here in sorted(used) if here in known)
    return _part(program, name, tuple(sorted(used)), read, tuple(stores), tuple(cuts))


@lru_cache(maxsize=1024)
def _part(
    program: Program, name: str, used: tuple[int, ...], read: tuple[Cut, ...],
    stores: tuple[int, ...], cuts: tuple[Cut, ...],
) -> Program:  # fmt: skip
    """Of the nodes that are `used`, those read from memory and the others: ways to cut a program
    have parts in common."""
    known = {cut.node: cut for cut in read}
    specs = {spec.name: spec for spec in program.tensors}
    axes: set[str] = set()
    tensors: dict[str, TensorSpec] = {}
    for here in used:
        axes.update(program.nodes[here].axes)
        op = program.nodes[here].op
        if here in known:
            spec = replace(known[here].spec, role="input")
            tensors[spec.name] = spec
        elif isinstance(op, Load):
            tensors[op.tensor] = specs[op.tensor]
        elif is_reduction(program.nodes[here]):
            axes.update(reduced_axes(program.nodes[here]))
    for store in stores:
        op = program.nodes[store].op
        assert isinstance(op, Store)
        tensors[op.tensor] = specs[op.tensor]
        axes.update(op.axes)
    tensors |= {cut.spec.name: cut.spec for cut in cuts}
    extents = {axis: extent for axis, extent in program.extents if axis in axes}
    graph = Graph.like(name, extents, tuple(tensors.values()), ())
    made: dict[int, Tile] = {}
    for here in used:
        if here in known:
            index = tuple(Index(((axis, 1),)) for axis in known[here].axes)
            made[here] = graph.add(Load(known[here].spec.name, index))
        else:
            node = program.nodes[here]
            made[here] = graph.add(node.op, *(made[arg] for arg in node.args))
    for cut in cuts:
        graph.add(Store(cut.spec.name, cut.axes), made[cut.node])
    for store in stores:
        graph.add(program.nodes[store].op, made[program.nodes[store].args[0]])
    return graph.program()
