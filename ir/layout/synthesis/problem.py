"""The question put to the synthesiser: tiles, what happens to them, and what is already decided.

Owns the form of a problem and its refusals that need no search. Knows no instruction's layout.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from ir.layout.errors import LayoutError
from ir.layout.widths import bits

SCOPES = ("global", "shared", "register")
KINDS = ("copy", "gemm", "map", "cast", "reduce", "fill")
REDUCTIONS = ("sum", "max", "min", "prod")
SHARED_BYTES = 232_448
REGISTERS = 255
MAX_THREADS = 1024

Attribute = str | int | float


@dataclass(frozen=True, slots=True)
class Tile:
    """A named block of elements with a place.

    `axes` are (axis name, extent) pairs; the tile index of an element is colexicographic over them
    in this order (the first axis runs fastest). Tiles meet each other by axis name.

    scope "global": `strides` is the distance in elements of one step along each axis (0 repeats
      an element), `alignment` the bytes by which the address of every such tile's first element is
      divisible. Elements narrower than a byte are packed, low half first.
    scope "shared": `stages` buffers, one after the other; layouts are those of one stage.
    scope "register": spread over all threads of the program.
      `layout` pins it: text of a layout (thread, value) -> tile index with two top modes, stride 0
      in the thread mode = the same element held by several threads.
    """

    name: str
    dtype: str
    axes: tuple[tuple[str, int], ...]
    scope: str
    strides: tuple[int, ...] = ()
    alignment: int = 16
    stages: int = 1
    layout: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, extent in self.axes)

    @property
    def size(self) -> int:
        """Elements of the tile (of one stage)."""
        return prod(self.shape)

    @property
    def bits(self) -> int:
        """Width of one element."""
        return bits(self.dtype)

    def __str__(self) -> str:
        axes = ", ".join(f"{name}={extent}" for name, extent in self.axes)
        return f"{self.name}: {self.scope} {self.dtype}[{axes}]"


@dataclass(frozen=True, slots=True)
class TileOp:
    """One op on whole tiles. Attributes by kind:

    copy: 1 -> 1, same axes in any order, same dtype and extents, from one scope to another. The two
      tiles are matched by axis name.
    gemm: (a, b) -> c, `m`, `n`, `k` = axis names; a has axes {m, k}, b {n, k}, c {m, n}, each in
      any order. c += a b^T: c is read and written (put a fill before it for a product from zero). a
      and b are in registers or shared, c in registers.
    map: any number of register tiles -> 1 register tile; `expression` = Python expression over the
      names of the inputs, elementwise, inputs broadcast by axis name to the output's axes (every
      input axis must be an output axis). Functions: exp, exp2, log, log2, sqrt, rsqrt, tanh, erf,
      sigmoid, abs, floor, maximum, minimum, where. A tile may be its own output (c = c * s).
    cast: 1 -> 1 register tiles, same axes in any order, other dtype (round as widths.encode).
    reduce: 1 -> 1 register tiles, `axis` = the axis combined, `fn` = sum | max | min | prod; the
      output has the other axes of the input.
    fill: 0 -> 1 register tile, `value` = number.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()

    def attribute(self, name: str, default: Attribute = "") -> Attribute:
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True, slots=True)
class Pins:
    """What the author has decided. Each entry is (position of the op in `ops`, decision).

    instructions: a full instruction name ("mma.m16n8k16.bf16", "ldmatrix.x4", "tma.load",
      "cp.async.16") or a family, a prefix that ends before a dot ("mma", "wgmma", "ldmatrix").
    warps: warps along (m, n) of a gemm, in the program's m and n; for wgmma in whole warp groups
      of 4 warps along the instruction's own m.
    swapped: True if the gemm's b is to be the instruction's A operand, False if a is.
    """

    instructions: tuple[tuple[int, str], ...] = ()
    warps: tuple[tuple[int, tuple[int, int]], ...] = ()
    swapped: tuple[tuple[int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class TileProgram:
    """A scheduled block: `ops` in dataflow order on `tiles`, by `threads` threads of one block.

    Straight line: one pass of every loop body. `bounds`: (axis, extent) of axes of which only so
    many points are there, though tiles have more (`extents.extended` makes such problems); no gemm
    is over one. Raises LayoutError with the numbers if malformed.
    """

    name: str
    threads: int
    tiles: tuple[Tile, ...]
    ops: tuple[TileOp, ...]
    pins: Pins = field(default_factory=Pins)
    target: str = "sm_90a"
    shared_bytes: int = SHARED_BYTES
    registers: int = REGISTERS
    bounds: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        _check_threads(self)
        names = [tile.name for tile in self.tiles]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise LayoutError("duplicate-tile", f"{self.name}: two tiles are named {repeated[0]!r}")
        for tile in self.tiles:
            _check_tile(tile)
        _check_extents(self)
        for position, op in enumerate(self.ops):
            _check_op(self, position, op)
        _check_order(self)
        _check_pins(self)
        _check_bounds(self)

    def tile(self, name: str) -> Tile:
        """The tile called `name`; LayoutError "unknown-tile" names those there are."""
        for tile in self.tiles:
            if tile.name == name:
                return tile
        known = ", ".join(tile.name for tile in self.tiles)
        raise LayoutError("unknown-tile", f"{self.name}: no tile {name!r}; there are {known}")


def _check_threads(program: TileProgram) -> None:
    threads = program.threads
    if threads % 32 or not 32 <= threads <= MAX_THREADS:
        due = f"a multiple of 32 up to {MAX_THREADS}"
        raise LayoutError("thread-count", f"{program.name}: {threads} threads, needs {due}")


def _check_extents(program: TileProgram) -> None:
    """An axis has one extent, whichever tile it is of."""
    extents: dict[str, int] = {}
    for tile in program.tiles:
        for axis, extent in tile.axes:
            known = extents.setdefault(axis, extent)
            if known != extent:
                text = f"{program.name}: axis {axis} is {known}, and {extent} of {tile.name}"
                raise LayoutError("axis-extent", text)


def _check_bounds(program: TileProgram) -> None:
    extents = {axis: extent for tile in program.tiles for axis, extent in tile.axes}
    products = {str(a) for op in program.ops if op.kind == "gemm" for _, a in op.attributes}
    for axis, bound in program.bounds:
        if not 1 <= bound <= extents.get(axis, 0) or axis in products:
            kind = "axis of a gemm" if axis in products else "axis"
            raise LayoutError(
                "axis-bound",
                f"{program.name}: bound {bound} of {kind} {axis}, extent {extents.get(axis, 0)}",
            )


def _check_tile(tile: Tile) -> None:
    if not tile.name.isidentifier() or keyword.iskeyword(tile.name):
        raise LayoutError("tile-name", f"{tile.name!r} is not a name")
    bits(tile.dtype)
    if tile.scope not in SCOPES:
        raise LayoutError("unknown-scope", f"{tile.name}: scope {tile.scope!r}; there are {SCOPES}")
    if not tile.axes or len(set(tile.names)) != len(tile.axes):
        raise LayoutError("tile-axes", f"{tile.name}: axes {tile.names} are none or repeat")
    for name, extent in tile.axes:
        if extent < 1:
            raise LayoutError("tile-axes", f"{tile.name}: axis {name} has extent {extent} < 1")
    if tile.layout and tile.scope != "register":
        raise LayoutError(
            "pinned-layout", f"{tile.name} is {tile.scope}; layouts of register tiles are pinned"
        )
    if tile.scope == "global" and len(tile.strides) != len(tile.axes):
        raise LayoutError(
            "global-strides", f"{tile.name}: {len(tile.strides)} strides for {len(tile.axes)} axes"
        )
    if tile.alignment < 1 or tile.alignment & (tile.alignment - 1):
        raise LayoutError(
            "alignment", f"{tile.name}: alignment {tile.alignment} B is not a power of two"
        )
    if tile.stages < 1 or (tile.stages > 1 and tile.scope != "shared"):
        raise LayoutError("stages", f"{tile.name}: {tile.stages} stages in {tile.scope} memory")


_ARITY = {"gemm": (2, 2), "map": (1, 64), "fill": (0, 0)}


def _check_op(program: TileProgram, position: int, op: TileOp) -> None:
    where = f"{program.name}: op {position} ({op.kind})"
    if op.kind not in KINDS:
        raise LayoutError("unknown-op", f"{where}: kinds are {', '.join(KINDS)}")
    low, high = _ARITY.get(op.kind, (1, 1))
    if not low <= len(op.inputs) <= high or len(op.outputs) != 1:
        raise LayoutError(
            "op-arity",
            f"{where}: {len(op.inputs)} inputs and {len(op.outputs)} outputs, "
            f"needs {low}{'' if low == high else f'..{high}'} and 1",
        )
    inputs = [program.tile(name) for name in op.inputs]
    output = program.tile(op.outputs[0])
    _RULES[op.kind](where, op, inputs, output)


def _copy_rule(where: str, op: TileOp, inputs: list[Tile], output: Tile) -> None:
    source = inputs[0]
    _same_axes(where, source, output)
    if source.dtype != output.dtype:
        raise LayoutError(
            "copy-dtype",
            f"{where}: {source.name} is {source.dtype} ({source.bits} bits), "
            f"{output.name} is {output.dtype} ({output.bits} bits); a copy converts nothing",
        )
    if source.scope == output.scope:
        both = f"{source.name} and {output.name} are both {source.scope}"
        raise LayoutError("copy-scopes", f"{where}: {both}; a copy goes from one scope to another")


def _gemm_rule(where: str, op: TileOp, inputs: list[Tile], output: Tile) -> None:
    axes = [str(op.attribute(letter)) for letter in "mnk"]
    m, n, k = axes
    wanted = ((inputs[0], {m, k}), (inputs[1], {n, k}), (output, {m, n}))
    if len(set(axes)) != 3:
        raise LayoutError("gemm-axes", f"{where}: m, n, k are {axes}; three different names needed")
    for tile, names in wanted:
        if set(tile.names) != names:
            raise LayoutError(
                "gemm-axes", f"{where}: {tile.name} has axes {tile.names}, needs {sorted(names)}"
            )
    if output.scope != "register":
        raise LayoutError("gemm-scope", f"{where}: {output.name} accumulates in {output.scope}")
    for tile in inputs:
        if tile.scope == "global":
            raise LayoutError("gemm-scope", f"{where}: {tile.name} is global; copy it first")


def _registers_only(where: str, op: TileOp, inputs: list[Tile], output: Tile) -> None:
    for tile in (*inputs, output):
        if tile.scope != "register":
            raise LayoutError("op-scope", f"{where}: {tile.name} is {tile.scope}, needs register")


def _map_rule(where: str, op: TileOp, inputs: list[Tile], output: Tile) -> None:
    _registers_only(where, op, inputs, output)
    if not op.attribute("expression"):
        raise LayoutError("map-expression", f"{where}: no expression")
    for tile in inputs:
        extra = [name for name in tile.names if name not in output.names]
        if extra:
            raise LayoutError(
                "broadcast-axes", f"{where}: {tile.name} has {extra[0]}, {output.name} has not"
            )


def _reduce_rule(where: str, op: TileOp, inputs: list[Tile], output: Tile) -> None:
    _registers_only(where, op, inputs, output)
    axis, kind = op.attribute("axis"), op.attribute("fn")
    if axis not in inputs[0].names or set(output.names) != set(inputs[0].names) - {axis}:
        raise LayoutError(
            "reduce-axes",
            f"{where}: {inputs[0].name}{inputs[0].names} over {axis!r} is not {output.names}",
        )
    if kind not in REDUCTIONS:
        raise LayoutError("reduce-kind", f"{where}: fn {kind!r}; there are {REDUCTIONS}")


def _turn_rule(where: str, op: TileOp, inputs: list[Tile], output: Tile) -> None:
    _registers_only(where, op, inputs, output)
    _same_axes(where, inputs[0], output)


def _same_axes(where: str, source: Tile, output: Tile) -> None:
    if set(source.names) != set(output.names):
        raise LayoutError(
            "copy-axes", f"{where}: {source.name}{source.names} and {output.name}{output.names}"
        )


_RULES = {
    "copy": _copy_rule,
    "gemm": _gemm_rule,
    "map": _map_rule,
    "cast": _turn_rule,
    "reduce": _reduce_rule,
    "fill": _registers_only,
}


def _check_order(program: TileProgram) -> None:
    """Shared and register tiles are read only after they were written, unless nothing writes them
    (a tile that an earlier pass of the loop left there)."""
    written_somewhere = {name for op in program.ops for name in op.outputs}
    written: set[str] = set()
    for position, op in enumerate(program.ops):
        for name in _reads(op):
            tile = program.tile(name)
            if tile.scope != "global" and name in written_somewhere and name not in written:
                raise LayoutError(
                    "read-before-write",
                    f"{program.name}: op {position} ({op.kind}) reads {name}, written only later",
                )
        written.update(op.outputs)


def _reads(op: TileOp) -> Iterator[str]:
    yield from (name for name in op.inputs if name not in op.outputs)


def _check_pins(program: TileProgram) -> None:
    pins = program.pins
    gemms = [position for position, op in enumerate(program.ops) if op.kind == "gemm"]
    for own, known, what in (
        (pins.instructions, range(len(program.ops)), f"{len(program.ops)} ops"),
        ((*pins.warps, *pins.swapped), gemms, f"gemms {gemms}"),
    ):
        for position, _ in own:
            if position not in known:
                text = f"{program.name}: pin on op {position}, there are {what}"
                raise LayoutError("pin-position", text)
    warps = program.threads // 32
    for position, (m, n) in pins.warps:
        if m < 1 or n < 1 or m * n != warps:
            raise LayoutError(
                "pinned-warps",
                f"{program.name}: op {position} pinned to {m} x {n} of {warps} warps",
            )
