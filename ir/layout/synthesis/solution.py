"""The answer of the synthesiser as plain data: layouts of tiles, and one plan per step.

Owns the form and its JSON. Knows neither how plans are found nor what layouts mean: a layout is its
text here, so that whoever checks or lowers a solution needs nothing of the solver.

Words used below. TV: text of a layout with two top modes, (thread, value) -> tile index of the
register tile (colexicographic over the tile's own axes). `value` v of a tile of w bits lies in bits
[v w, (v + 1) w) of the thread's registers of that tile. Layout texts are "shape:stride" trees; an
integer argument of a mode is colexicographic in it. A swizzled layout is "S(b,m,s) o 0 o
shape:stride", the swizzle acting on the offset in elements (the tile's address is aligned to the
swizzle's repeat).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from ir.layout.errors import LayoutError

VERSION = 1


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Where one tile lies. `name` differs from `of` for a tile that a conversion made.

    Register: `layout` is the TV; `registers` are 32-bit registers of one thread; `replicated` lists
    (stride, extent) of the thread digits, coordinate (thread // stride) % extent, whose threads all
    hold the same elements. Shared and global: `layout` maps the tile index to the offset in
    elements; shared: `bytes` of one stage, times `stages`, at an address divisible by `alignment`.
    """

    name: str
    of: str
    dtype: str
    axes: tuple[tuple[str, int], ...]
    scope: str
    layout: str
    registers: int = 0
    replicated: tuple[tuple[int, int], ...] = ()
    bytes: int = 0
    stages: int = 1
    alignment: int = 0


@dataclass(frozen=True, slots=True)
class TmaPlan:
    """A bulk tensor copy. Element j of box b (j colexicographic over `extents`, dim 0 fastest) has
    tile index box(j) + starts(b) in the global tile's index, and lies at byte
    swizzle(shared_starts[b] + j * bits / 8) of the shared tile, where swizzle = S(`swizzle`, 4, 3)
    on bytes. `strides` are the distances in elements in global memory of the box's dims, the first
    is 1.
    """

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: str
    starts: str
    shared_starts: tuple[int, ...]
    swizzle: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """One copy (also red): every access moves `elements` elements per thread, `bits` bits.

    `instructions`: one name, or two ("ld.64", "st.64") where global and shared memory meet through
    registers of no tile. Unless TMA:
    `values` (the register side's; "" if none): layout (element, issue) -> value index of the
    register tile, so issue i of a thread moves its values values(0, i) .. values(elements - 1, i).
    `source_addresses`, `target_addresses` ("" for a register side): layout (thread, issue) -> tile
    index, in the index of that side's tile, of the access's first element; the elements of an
    access are consecutive in memory (ldmatrix, stmatrix: the address is that of the 16-byte row
    which the lane supplies, element order is that of the instruction's fragment, lanes whose
    address the instruction ignores carry stride 0). `guards`: (stride, extent) of thread digits;
    only threads whose coordinates there are all 0 take part (stores of replicated elements, surplus
    threads). Loads need none. `ways`: wavefronts per access that the shared side costs over the
    least possible, 1 = no conflict, for the worst access; `sectors`: 32-byte sectors that one
    access of a warp touches in global memory, for the worst access.
    """

    kind: ClassVar[str] = "copy"
    op: int
    source: str
    target: str
    instructions: tuple[str, ...]
    bits: int
    elements: int
    values: str = ""
    source_addresses: str = ""
    target_addresses: str = ""
    issues: int = 1
    guards: tuple[tuple[int, int], ...] = ()
    ways: int = 1
    sectors: int = 0
    tma: TmaPlan | None = None
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class DescriptorPlan:
    """A wgmma operand in shared memory. `major`: "k" or "mn"; `swizzle`: 0..3 bits; `lbo`, `sbo` in
    bytes; `starts`: layout (warp group, repeat along m or n, repeat along k) -> byte offset of the
    start address from the tile's address; `word`: the 64-bit descriptor for start address 0.
    """

    major: str
    swizzle: int
    lbo: int
    sbo: int
    starts: str
    word: int


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """c += a b^T. `a`, `b`, `c` are the tiles in the INSTRUCTION's roles (swapped: a is the
    program's second operand, and the instruction's m is the program's n). `loops` = (repeats along
    the instruction's m, n, k) of one warp or warp group; the repeat along k runs innermost.

    `a_values`: layout (instruction value, m repeat, k repeat) -> value index of tile a, "" if
    shared; `b_values`: (instruction value, n repeat, k repeat); `c_values`: (instruction value, m
    repeat, n repeat). The instruction's thread is thread % 32 (mma) or thread % 128 (wgmma).
    `warps`: warps (wgmma: warp groups) along the instruction's m and n. `m_order`, `n_order`,
    `k_order`: layout (instruction index, repeat) -> coordinate on the tile's axis, of the first
    warp; k_order other than the identity is a K permutation.
    """

    kind: ClassVar[str] = "gemm"
    op: int
    instruction: str
    swapped: bool
    a: str
    b: str
    c: str
    loops: tuple[int, int, int]
    warps: tuple[int, int]
    a_values: str = ""
    b_values: str = ""
    c_values: str = ""
    a_descriptor: DescriptorPlan | None = None
    b_descriptor: DescriptorPlan | None = None
    m_order: str = ""
    n_order: str = ""
    k_order: str = ""
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class MapPlan:
    """map, cast, broadcast, transpose and fill: no thread looks at another's registers.

    `values`, one per input: layout, value index of the output -> value index of the input.
    """

    kind: ClassVar[str] = "map"
    op: int
    inputs: tuple[str, ...]
    output: str
    values: tuple[str, ...] = ()
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class ReducePlan:
    """First in the thread: `values` is a layout (kept, combined) -> value index of the input, and
    kept is the value index of the output. Then thread t with t xor mask, for each mask of `lanes`
    in turn. Then all threads along `digits`, (stride, extent) in thread numbers, through
    `scratch_bytes` of shared memory. The result is held alike by all threads along `replicated`,
    the (stride, extent) of lanes and digits, and along those where the input was replicated.
    """

    kind: ClassVar[str] = "reduce"
    op: int
    input: str
    output: str
    values: str
    lanes: tuple[int, ...] = ()
    digits: tuple[tuple[int, int], ...] = ()
    scratch_bytes: int = 0
    replicated: tuple[tuple[int, int], ...] = ()
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a conversion; the state is (thread, value) -> element.

    kind "rename": `values` is a layout (thread, new value) -> old value of the same thread.
    kind "exchange": element at lane bit = a, value bit = b goes to lane bit = b, value bit = a; the
      lane bit is (thread // lane) % 2, the value bit (value // value) % 2 (select, shuffle,
      select).
    kind "lanes": `values` is a layout thread -> the thread (of the same warp) it takes all its
      values from.
    """

    kind: str
    values: str = ""
    lane: int = 0
    value: int = 0


@dataclass(frozen=True, slots=True)
class ConvertPlan:
    """Tile `target` holds the elements of tile `source` in another TV, before op `op` runs (after
    it for an op whose output must lie elsewhere; the order of `Solution.steps` says).

    `price_class` "rename" (no instruction but moves in the thread), "shuffle" (within warps) or
    "shared" (round trip: `store`, barrier, `load`, through `scratch`). `why` names the two ops.
    """

    kind: ClassVar[str] = "convert"
    op: int
    source: str
    target: str
    price_class: str
    why: str
    moves: tuple[Move, ...] = ()
    scratch: TilePlan | None = None
    store: CopyPlan | None = None
    load: CopyPlan | None = None
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is. `subject`: a tile's name; `verdict`: "decided", "refused",
    "fallback" or "note"; `op`: position of the op concerned, -1 for none; `code`: kebab-case;
    `text`: one line with the numbers.
    """

    subject: str
    verdict: str
    op: int
    code: str
    text: str


Step = CopyPlan | GemmPlan | MapPlan | ReducePlan | ConvertPlan


@dataclass(frozen=True, slots=True)
class Solution:
    """Every tile placed, every op planned. `steps` are in execution order: the ops of the program
    in their order, conversions between them. `cycles` is the predicted cost of one block.

    `bounds`: (axis, extent) of axes that the tiles have wider than the problem, so that threads
    share them out. Points from the bound on are not there: of copies to or from global memory the
    accesses whose first element is one are left out (no access is cut), and a reduction over the
    axis takes its neutral element for them.
    """

    program: str
    threads: int
    tiles: tuple[TilePlan, ...]
    steps: tuple[Step, ...]
    cycles: float
    shared_bytes: int
    registers: int
    reasons: tuple[Reason, ...] = field(default=(), repr=False)
    bounds: tuple[tuple[str, int], ...] = ()

    def tile(self, name: str) -> TilePlan:
        """The plan of the tile called `name`; LayoutError "unknown-tile"."""
        for tile in self.tiles:
            if tile.name == name:
                return tile
        raise LayoutError("unknown-tile", f"{self.program}: no tile {name!r} in the solution")

    @property
    def conversions(self) -> tuple[ConvertPlan, ...]:
        return tuple(step for step in self.steps if isinstance(step, ConvertPlan))

    def explain(self) -> str:
        """For each tile which op decided it, what was refused and why, with the numbers."""
        from ir.layout.synthesis.explain import explain

        return explain(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data: dicts with the fields' names, lists, strings, numbers, None; each step also
        has its "kind"."""
        data = _plain(self)
        data["version"] = VERSION
        return dict(data)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Solution:
        """The solution that `to_json` wrote; LayoutError "solution-version" or "solution-form" for
        data of another form."""
        if data.get("version") != VERSION:
            raise LayoutError(
                "solution-version", f"version {data.get('version')!r}, this reads {VERSION}"
            )
        try:
            return _read(data)
        except (KeyError, TypeError, ValueError) as error:
            raise LayoutError("solution-form", f"no solution in this form: {error!r}") from None


def _read(data: Mapping[str, Any]) -> Solution:
    return Solution(
        program=data["program"],
        threads=data["threads"],
        tiles=tuple(_tile(tile) for tile in data["tiles"]),
        steps=tuple(_step(step) for step in data["steps"]),
        cycles=data["cycles"],
        shared_bytes=data["shared_bytes"],
        registers=data["registers"],
        reasons=tuple(Reason(**reason) for reason in data["reasons"]),
        bounds=tuple((axis, extent) for axis, extent in data.get("bounds", ())),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    data = {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    kind = getattr(value, "kind", None)
    return {"kind": kind, **data} if kind is not None else data


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _made(cls: Any, data: Mapping[str, Any] | None, **parts: Any) -> Any:
    """A plan of class `cls` from plain data; `parts` are its nested plans."""
    if data is None:
        return None
    known = {item.name for item in fields(cls)}
    flat = {key: _frozen(value) for key, value in data.items() if key in known}
    return cls(**{**flat, **parts})


def _tile(data: Mapping[str, Any] | None) -> Any:
    return _made(TilePlan, data)


def _copy(data: Mapping[str, Any] | None) -> Any:
    return None if data is None else _made(CopyPlan, data, tma=_made(TmaPlan, data["tma"]))


def _gemm(data: Mapping[str, Any]) -> Any:
    sides = {key: _made(DescriptorPlan, data[key]) for key in ("a_descriptor", "b_descriptor")}
    return _made(GemmPlan, data, **sides)


def _convert(data: Mapping[str, Any]) -> Any:
    return _made(
        ConvertPlan,
        data,
        moves=tuple(Move(**move) for move in data["moves"]),
        scratch=_tile(data["scratch"]),
        store=_copy(data["store"]),
        load=_copy(data["load"]),
    )


def _step(data: Mapping[str, Any]) -> Any:
    readers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "copy": _copy,
        "gemm": _gemm,
        "convert": _convert,
        "map": lambda step: _made(MapPlan, step),
        "reduce": lambda step: _made(ReducePlan, step),
    }
    if data["kind"] not in readers:
        raise LayoutError("solution-version", f"unknown step kind {data['kind']!r}")
    return readers[data["kind"]](data)
