"""What a kernel on wgmma takes from the layout synthesis: lines of operand tiles, and fragments.

The block of a plan is posed as a problem of `ir.layout.synthesis`: operands come by TMA, the
instruction and its warps are the schedule's. Of the ranked solutions those count that differ in
what is emitted; which one is taken is the decision `layout`. Emits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ir.errors import Refusal
from ir.layout.errors import LayoutError
from ir.layout.instructions.rows import suffix
from ir.layout.synthesis import GemmPlan, Pins, Solution, Tile, TileOp, TileProgram, synthesise
from ir.ops.load import Load
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.layouts.panels import panels_of
from ir.targets.cuda.layouts.placed import ThreadValues, thread_values

if TYPE_CHECKING:
    from ir.targets.cuda.plans.tensor_plan import Plan

LAYOUTS = (0, 1, 2)  # solutions that a schedule may ask for
TRIED = 8  # solutions among which those are sought
KEPT_PROBLEMS = 4096
FAR = 1 << 20  # points from one line of a tensor to the next: further than any tile reaches
ENOUGH = 1 << 20  # shared memory and registers, which the constraints count
WARPS = 4  # of a warp group
ROWS = 64  # of one wgmma
NARROWEST = 32  # bytes of a line
ACCUMULATOR, OPERAND, SHARED = "sum", "operand", "shared"  # names of a node's tiles

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """`width` bytes each; `order` as `panels.Panels` has it."""

    width: int
    order: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BlockLayouts:
    """One solution, as far as the text of a kernel differs by it.

    `lines`: bytes of a shared tile's lines, by its name in the problem, and the order in which
    they lie; `fragments`: where the points of a register tile lie, by its name.
    """

    lines: Mapping[str, Lines]
    fragments: Mapping[str, ThreadValues]


def block_layouts(problem: TileProgram, number: int) -> BlockLayouts:
    """The `number`-th of a problem's layouts.

    Refusal "layout" where there are not so many, and "layouts", with the synthesis' own words,
    where there are none.
    """
    found = _layouts(problem, TRIED if number else 1)
    if not found:
        found = _layouts(problem, TRIED)
    if number >= len(found):
        raise Refusal("layout", f"solution {number}: {len(found)} differ in the kernel")
    return found[number]


@lru_cache(maxsize=KEPT_PROBLEMS)
def _layouts(problem: TileProgram, limit: int) -> tuple[BlockLayouts, ...]:
    """Layouts of a problem that differ in what is emitted, the best first."""
    try:
        solutions = synthesise(problem, limit)
    except LayoutError as error:
        raise Refusal("layouts", f"{error.code}: {error}") from None
    found: list[BlockLayouts] = []
    for solution in solutions:
        layouts = _read(problem, solution)
        if layouts is not None and layouts not in found:
            found.append(layouts)
    return tuple(found)


def _read(problem: TileProgram, solution: Solution) -> BlockLayouts | None:
    """A solution as kernels are emitted; None if they cannot be."""
    if solution.conversions:
        why = "; ".join(step.why for step in solution.conversions)
        raise Refusal("layouts", f"registers would have to be exchanged: {why}")
    lines: dict[str, Lines] = {}
    fragments = {}
    orders = {step.c: step.c_values for step in solution.steps if isinstance(step, GemmPlan)}
    for tile in problem.tiles:
        layout = solution.tile(tile.name).layout
        if tile.scope == "register":
            order = orders.get(tile.name, "")
            fragments[tile.name] = thread_values(layout, tile.shape, order)
        elif tile.scope == "shared":
            lines[tile.name] = _emitted(tile, layout)
    return BlockLayouts(lines, fragments) if all(one.width for one in lines.values()) else None


def _emitted(tile: Tile, layout: str) -> Lines:
    """The lines that are emitted for an operand tile's layout; of no width for none.

    The synthesis knows no padding. Across the sum, where only lines of less than 64 bytes divide
    the tile, it has padded ones of 128: boxes of TMA with so short lines are slow.
    """
    found = panels_of(tile, layout)
    if found is None or not found.canonical:
        return Lines(0)
    width = found.width
    if found.along == 0 and width < LINE // 2:
        return Lines(0 if tile.shape[0] * tile.bits // 8 % (LINE // 2) == 0 else LINE)
    return Lines(width if width >= NARROWEST else 0, found.order)


# -- the block as a problem


def product_block(plan: Plan) -> TileProgram:
    """The products of one block of a plan, as a warp group has them for the rows of an instruction:
    operands by TMA, fragments, accumulators. Along the rows all of it repeats."""
    return _Block(plan).run()


class _Block:
    """Poses one plan. Rows are "m", columns "n", what is walked "k", what is held "h", "h1" ..."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.nodes = plan, plan.program.nodes
        self.tiles: dict[str, Tile] = {}
        self.ops: list[TileOp] = []
        self.instructions: list[tuple[int, str]] = []
        self.gemms: list[int] = []

    def run(self) -> TileProgram:
        for product in self.plan.roles.products:
            self._product(product)
        pins = Pins(
            tuple(self.instructions),
            tuple((at, (WARPS, 1)) for at in self.gemms),
            tuple((at, False) for at in self.gemms),
        )
        return TileProgram(
            "block", GROUP, tuple(self.tiles.values()), tuple(self.ops), pins,
            shared_bytes=ENOUGH, registers=ENOUGH,
        )  # fmt: skip

    def _product(self, product: Product) -> None:
        plan = self.plan
        inner = product in plan.roles.inner
        walk = ("k", plan.block.size)
        m = ("m", ROWS)
        n = walk if inner else ("n", plan.group_columns)
        if inner and plan.shared_words:
            n = ("w", plan.group_walk)
        whole = inner or product not in plan.roles.outer
        k = self._held(product) if whole else walk
        name = f"{ACCUMULATOR}{product.position}"
        a, b = self._first(product, (m, k)), self._shared(product, product.b, (n, k))
        self.tiles[name] = Tile(name, self.nodes[product.position].dtype, (m, n), "register")
        self.ops.append(TileOp("fill", (), (name,), (("value", 0),)))
        form = "ss" if self.tiles[a].scope == "shared" else "rs"
        dtype, step = plan.roles.dtype_of(product), plan.step_of(product)
        self._pin(f"wgmma.m64n{n[1]}k{step}.{suffix(dtype)}.{form}")
        self.gemms.append(len(self.ops))
        facts = (("m", m[0]), ("n", n[0]), ("k", k[0]))
        self.ops.append(TileOp("gemm", (a, b), (name,), facts))

    def _held(self, product: Product) -> tuple[str, int]:
        """The axis of what is held of an inner product, numbered where others sum over others."""
        roles = self.plan.roles
        whole = (one for one in roles.products if one not in roles.outer)
        known = list(dict.fromkeys(frozenset(one.over) for one in whole))
        number = known.index(frozenset(product.over))
        return f"h{number or ''}", prod(self.plan.tiles[axis] for axis in product.over)

    def _pin(self, instruction: str) -> None:
        """Pin the op that comes next."""
        self.instructions.append((len(self.ops), instruction))

    def _first(self, product: Product, axes: Axes) -> str:
        """The operand along the rows: in shared memory, loaded from there, or computed."""
        plan, position = self.plan, product.a
        name = f"{OPERAND}{position}"
        loaded = isinstance(self.nodes[position].op, Load)
        if loaded and not (plan.from_registers and product in plan.roles.outer):
            return self._shared(product, position, axes)
        if name in self.tiles:
            return name
        if plan.shared_words and product in plan.roles.outer:
            return self._stored(position, axes)
        source = self._shared(product, position, axes) if loaded else ""
        self.tiles[name] = Tile(name, self.nodes[position].dtype, axes, "register")
        if loaded:
            self.ops.append(TileOp("copy", (source,), (name,)))
        elif plan.roles.inner and product in plan.roles.outer:
            scores = tuple(f"{ACCUMULATOR}{inner.position}" for inner in plan.roles.inner)
            facts = (("expression", " + ".join(scores)),) if len(scores) > 1 else ()
            self.ops.append(TileOp("map" if facts else "cast", scores, (name,), facts))
        else:
            self.ops.append(TileOp("fill", (), (name,), (("value", 0),)))
        return name

    def _stored(self, position: int, axes: Axes) -> str:
        """A tile that threads compute, in lines along the sum as copies would leave them."""
        name = f"{SHARED}{position}"
        if name not in self.tiles:
            dtype = self.nodes[position].dtype
            source = Tile(f"{name}_global", dtype, axes, "global", (FAR, 1))
            self.tiles |= {source.name: source, name: Tile(name, dtype, axes, "shared")}
            self._pin("tma.load")
            self.ops.append(TileOp("copy", (source.name,), (name,)))
        return name

    def _shared(self, product: Product, position: int, axes: Axes) -> str:
        """The tile of a plain operand, and its copy, once; of one that two products sum over
        different axes, once for each."""
        name = f"{SHARED}{position}"
        if name in self.tiles and self.tiles[name].axes != axes:
            name = f"{name}_{product.position}"
        if name in self.tiles:
            return name
        operand = self.plan.unplaced(product, position)
        strides = (FAR, 1) if operand.sums_inside else (1, FAR)
        dtype = self.nodes[position].dtype
        source = Tile(f"{name}_global", dtype, axes, "global", strides)
        self.tiles |= {source.name: source, name: Tile(name, dtype, axes, "shared")}
        self._pin("tma.load")
        self.ops.append(TileOp("copy", (source.name,), (name,)))
        return name
