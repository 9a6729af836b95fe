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

from dataclasses import dataclass, field
from typing import ClassVar

from ir.layout.errors import LayoutError


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
    """One copy: every access moves `elements` elements per thread, `bits` bits.

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
    """map, cast and fill: no thread looks at another's registers.

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
