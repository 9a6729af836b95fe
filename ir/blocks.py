"""A block of an `ir.program.Program` as a synthesis problem: its loads, products, maps, reductions.

It stands between programs and layouts, which know nothing of each other, and decides no layout:
tile sizes, threads and which memory an operand of a product is read from are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ir.layout.errors import LayoutError
from ir.layout.synthesis.problem import Pins, Tile, TileOp, TileProgram
from ir.layout.widths import bits
from ir.ops.base import TensorSpec
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Program

BASE_ALIGNMENT = 256
"""Bytes to which whole tensors are aligned (CUDA programming guide, device memory)."""
DEFAULT_TILE = 64
SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "eq": "=="}
CALLS = {"max": "maximum", "min": "minimum"}
PLAIN = ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "abs", "floor", "where")
FAMILIES = ("mma", "wgmma")
EPILOGUES = ("direct", "staged")


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What a schedule has settled before layouts are asked for.

    `tiles`: axis -> tile extent (whole axes up to DEFAULT_TILE where missing, 1 for axes that no
    product, reduction or vector runs along). `family`: "mma" reads both operands of a product from
    registers, "wgmma" reads those that come straight from memory from shared memory. `epilogue`
    "staged" sends outputs through shared memory.
    """

    tiles: Mapping[str, int]
    threads: int = 128
    family: str = "wgmma"
    epilogue: str = "direct"
    target: str = "sm_90a"


def from_program(program: Program, scheduling: Scheduling) -> TileProgram:
    """One block's pass over `program`: global tiles, copies, ops and outputs, by name.

    LayoutError "unsupported-op" names an op that has no tile form, "tile-size" an extent that does
    not divide, "unknown-axis" a tile size for no axis, "unknown-family" and "unknown-epilogue".
    """
    return _Translation(program, scheduling).run()


class _Translation:
    def __init__(self, program: Program, scheduling: Scheduling) -> None:
        self.program, self.scheduling = program, scheduling
        for what, name, known in (
            ("family", scheduling.family, FAMILIES),
            ("epilogue", scheduling.epilogue, EPILOGUES),
        ):
            if name not in known:
                raise LayoutError(
                    f"unknown-{what}", f"{what} {name!r}: known are {', '.join(known)}"
                )
        self.extents = _extents(program, scheduling)
        self.tiles: dict[str, Tile] = {}
        self.ops: list[TileOp] = []
        self.made: dict[int, str] = {}
        self.pins: list[tuple[int, str]] = []

    def run(self) -> TileProgram:
        for position, node in enumerate(self.program.nodes):
            if isinstance(node.op, Contract):
                self._contract(position)
            elif isinstance(node.op, Reduce):
                self._reduce(position)
            elif isinstance(node.op, Store):
                self._store(position)
            elif not isinstance(node.op, Load | Constant | Map | Cast):
                raise LayoutError(
                    "unsupported-op",
                    f"{self.program.name}: node {position} ({node.op.name}) has no tile form",
                )
        name = "_".join((self.program.name, *(f"{a}{e}" for a, e in self.extents.items())))
        scheduling = self.scheduling
        return TileProgram(
            name.replace(".", "_"),
            scheduling.threads,
            tuple(self.tiles.values()),
            tuple(self.ops),
            Pins(tuple(self.pins)),
            scheduling.target,
        )

    def _axes(self, names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        """Axes of a tile; those of extent 1 are gone, a single element keeps one."""
        kept = tuple((name, self.extents[name]) for name in names if self.extents[name] > 1)
        return kept or ((names[0] if names else "one", 1),)

    def _add(self, name: str, dtype: str, axes: tuple[tuple[str, int], ...], scope: str) -> str:
        self.tiles[name] = Tile(name, dtype, axes, scope)
        return name

    def _op(
        self, kind: str, inputs: tuple[str, ...], output: str, **facts: str | int | float
    ) -> None:
        self.ops.append(TileOp(kind, inputs, (output,), tuple(facts.items())))

    def _global(self, spec: TensorSpec, dims: tuple[str, ...]) -> str:
        """The block's part of a tensor; its alignment follows from the strides between blocks."""
        name = f"{_word(spec.name)}_g"
        if name in self.tiles:
            return name
        if not dims:
            raise LayoutError(
                "unsupported-op",
                f"{self.program.name}: {spec.name} is a single element, which has no tile form",
            )
        width = bits(spec.dtype)
        strides, step, alignment = dict[str, int](), 1, BASE_ALIGNMENT
        for axis, extent in reversed(list(zip(dims, spec.shape, strict=True))):
            strides[axis] = step
            if self.extents[axis] < extent:
                alignment = math.gcd(alignment, self.extents[axis] * step * width // 8)
            step *= extent
        axes = self._axes(dims)
        pitches = tuple(strides[axis] for axis, _ in axes)
        self.tiles[name] = Tile(name, spec.dtype, axes, "global", pitches, max(1, alignment))
        return name

    def _register(self, position: int) -> str:
        """The register tile that holds a node's value, emitting what makes it."""
        if position in self.made:
            return self.made[position]
        node = self.program.nodes[position]
        if isinstance(node.op, Load):
            name = self._load(position, node.op)
        elif isinstance(node.op, Cast):
            source = self._register(node.args[0])
            name = self._add(f"v{position}", node.dtype, self._axes(node.axes), "register")
            self._op("cast", (source,), name)
        elif isinstance(node.op, Map):
            name = self._map(position)
        else:
            raise LayoutError(
                "unsupported-op", f"{self.program.name}: node {position} ({node.op.name}) as a tile"
            )
        self.made[position] = name
        return name

    def _source(self, position: int, op: Load) -> str:
        """The global tile of a load; each dimension must be one axis."""
        spec = self.program.scope.tensors[op.tensor]
        dims = []
        for index in op.index:
            simple = len(index.terms) == 1 and index.terms[0][1] == 1 and index.gather is None
            if not simple or index.constant or index.terms[0][0] in dims:
                raise LayoutError(
                    "unsupported-op",
                    f"{self.program.name}: node {position} loads {op.tensor} at {index}; only one "
                    "plain axis for each dimension has a tile form",
                )
            dims.append(index.terms[0][0])
        return self._global(spec, tuple(dims))

    def _load(self, position: int, op: Load) -> str:
        source = self._source(position, op)
        tile = self.tiles[source]
        name = self._add(f"{source[:-2]}_r{position}", tile.dtype, tile.axes, "register")
        self._op("copy", (source,), name)
        return name

    def _map(self, position: int) -> str:
        """Maps that only this one reads are written into its expression."""
        inputs: dict[str, None] = {}
        expression = self._expression(position, inputs)
        node = self.program.nodes[position]
        if not inputs:
            raise LayoutError(
                "unsupported-op", f"{self.program.name}: node {position} maps constants alone"
            )
        name = self._add(f"v{position}", node.dtype, self._axes(node.axes), "register")
        self._op("map", tuple(inputs), name, expression=expression)
        return name

    def _expression(self, position: int, inputs: dict[str, None]) -> str:
        node = self.program.nodes[position]
        assert isinstance(node.op, Map)
        parts = [self._term(arg, inputs) for arg in node.args]
        function = node.op.function
        if function in SYMBOLS:
            return f"({parts[0]} {SYMBOLS[function]} {parts[1]})"
        if function == "neg":
            return f"(-{parts[0]})"
        if function in PLAIN or function in CALLS:
            return f"{CALLS.get(function, function)}({', '.join(parts)})"
        raise LayoutError(
            "unsupported-op", f"{self.program.name}: node {position} maps {function}, as no tile"
        )

    def _term(self, position: int, inputs: dict[str, None]) -> str:
        node = self.program.nodes[position]
        if isinstance(node.op, Constant):
            return repr(node.op.value)
        alone = len(self.program.users(position)) == 1 and position not in self.made
        if isinstance(node.op, Map) and (alone or node.dtype == "bool"):
            return self._expression(position, inputs)
        name = self._register(position)
        inputs[name] = None
        return name

    def _contract(self, position: int) -> None:
        node = self.program.nodes[position]
        assert isinstance(node.op, Contract)
        left, right = (self.program.nodes[arg] for arg in node.args)
        sides = [{a for a in side.axes if self.extents[a] > 1} for side in (left, right)]
        m, n = sides[0] - sides[1], sides[1] - sides[0]
        k = (sides[0] & sides[1]) & set(node.op.over)
        if len(m) != 1 or len(n) != 1 or len(k) != 1 or sides[0] & sides[1] != k:
            raise LayoutError(
                "unsupported-op",
                f"{self.program.name}: node {position} contracts {sorted(sides[0])} and "
                f"{sorted(sides[1])} over {node.op.over}; a product has one axis each of m, n, k "
                "(give other axes tile size 1)",
            )
        operands = tuple(self._operand(arg) for arg in node.args)
        name = self._add(f"v{position}", node.op.acc, self._axes(node.axes), "register")
        self._op("fill", (), name, value=0)
        self.pins.append((len(self.ops), self.scheduling.family))
        self._op("gemm", operands, name, m=m.pop(), n=n.pop(), k=k.pop())
        self.made[position] = name

    def _operand(self, position: int) -> str:
        """Where a product reads a node: straight from shared memory, or in registers."""
        node = self.program.nodes[position]
        if not isinstance(node.op, Load):
            return self._register(position)
        source = self._source(position, node.op)
        tile = self.tiles[source]
        shared = f"{source[:-2]}_s"
        if shared not in self.tiles:
            self._add(shared, tile.dtype, tile.axes, "shared")
            self._op("copy", (source,), shared)
        if self.scheduling.family == "wgmma":
            return shared
        held = self._add(f"{source[:-2]}_r{position}", tile.dtype, tile.axes, "register")
        self._op("copy", (shared,), held)
        return held

    def _reduce(self, position: int) -> None:
        node = self.program.nodes[position]
        assert isinstance(node.op, Reduce)
        name = self._register(node.args[0])
        for number, axis in enumerate(node.op.over):
            source = self.tiles[name]
            if self.extents[axis] == 1:
                continue
            kept = tuple(item for item in source.axes if item[0] != axis)
            if not kept:
                raise LayoutError(
                    "unsupported-op",
                    f"{self.program.name}: node {position} reduces {source} to a single element",
                )
            result = self._add(f"v{position}_{number}", node.dtype, kept, "register")
            self._op("reduce", (name,), result, axis=axis, fn=node.op.kind)
            name = result
        self.made[position] = name

    def _store(self, position: int) -> None:
        node = self.program.nodes[position]
        assert isinstance(node.op, Store)
        spec = self.program.scope.tensors[node.op.tensor]
        name = self._register(node.args[0])
        target = self._global(spec, node.op.axes)
        tile = self.tiles[target]
        if set(self.tiles[name].names) != set(tile.names):
            wider = self._add(f"v{position}_b", self.tiles[name].dtype, tile.axes, "register")
            self._op("map", (name,), wider, expression=name)
            name = wider
        if self.tiles[name].dtype != spec.dtype:
            narrow = self._add(f"v{position}_c", spec.dtype, self.tiles[name].axes, "register")
            self._op("cast", (name,), narrow)
            name = narrow
        if self.scheduling.epilogue == "staged":
            staged = self._add(f"{target[:-2]}_s", spec.dtype, tile.axes, "shared")
            self._op("copy", (name,), staged)
            name = staged
        self._op("copy", (name,), target)


def _word(name: str) -> str:
    return name.replace(".", "_")


def _extents(program: Program, scheduling: Scheduling) -> dict[str, int]:
    """Tile extent of every axis."""
    axes = program.axes
    for axis, extent in scheduling.tiles.items():
        if axis not in axes:
            raise LayoutError(
                "unknown-axis", f"{program.name}: no axis {axis!r}; there are {', '.join(axes)}"
            )
        if extent < 1 or axes[axis] % extent:
            raise LayoutError(
                "tile-size", f"{program.name}: tile {extent} does not divide {axis} = {axes[axis]}"
            )
    batch = _batch(program)
    return {
        axis: scheduling.tiles.get(axis, 1 if axis in batch else math.gcd(extent, _least(extent)))
        for axis, extent in axes.items()
    }


def _least(extent: int) -> int:
    return extent if extent <= DEFAULT_TILE else DEFAULT_TILE


def _batch(program: Program) -> set[str]:
    """Axes along which every product is only repeated."""
    found: set[str] = set()
    for node in program.nodes:
        if isinstance(node.op, Contract):
            left, right = (set(program.nodes[arg].axes) for arg in node.args)
            found |= (left & right) - set(node.op.over)
    return found
