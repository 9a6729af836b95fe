"""What instructions can move a tile between two places, widest first, and what each would cost.

Owns the choice of one copy's instruction and thread map once spreads and placements are given.
Knows nothing of other ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ir.layout.synthesis.digits import LANE_DIGITS, NOBODY, Space, Spread, deal
from ir.layout.synthesis.gemm import Rejection, prefix_digits
from ir.layout.synthesis.memory import SECTOR, Phase, Placement, phase_digits
from ir.layout.synthesis.problem import Tile

WIDTHS = (128, 64, 32, 16, 8)
ASYNCHRONOUS = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class Access:
    """One copy's instruction over digits: `elements` of one access, `issues` that number a thread's
    accesses, and the digit that each thread digit selects for the address."""

    instructions: tuple[str, ...]
    bits: int
    elements: tuple[int, ...]
    issues: tuple[int, ...]
    threads: tuple[int, ...]
    guards: tuple[tuple[int, int], ...] = ()
    matrix: bool = False


def register_accesses(
    space: Space, spread: Spread, tile: Tile, load: bool, sm: int, pinned: str
) -> Iterator[Access]:
    """Matrix copies between registers and shared memory that the spread allows, widest first. What
    they ask of memory: `elements` followed by their `row` digits lie side by side."""
    stem = "ldmatrix" if load else "stmatrix"
    if sm < (75 if load else 90) or (pinned and not pinned.startswith(stem)):
        return
    count = prefix_digits(tile.bits)
    lanes = spread.threads[:LANE_DIGITS]
    own = spread.values[:count]
    if tile.bits > 32 or NOBODY in lanes or len(own) < count:
        return
    if any(space.radix[digit] != 2 for digit in own):
        return
    guards = () if load else space.replicated(spread.threads)
    for matrices in (2, 1, 0):
        name = f"{stem}.x{1 << matrices}"
        for transposed in (False, True):
            full = name + (".trans" if transposed else "")
            if pinned and full != pinned and not full.startswith(pinned + "."):
                continue
            if transposed and tile.bits != 16:
                continue
            picked = _matrix_digits(space, spread, count, matrices)
            if picked is None:
                continue
            rows = (own[0], lanes[0], lanes[1]) if transposed else lanes[2:5]
            threads = (*rows, *picked, *(NOBODY,) * (2 - matrices), *spread.threads[LANE_DIGITS:])
            elements = (*own, *picked)
            issues = tuple(digit for digit in spread.values if digit not in elements)
            yield Access((full,), 32 << matrices, elements, issues, threads, guards, True)


def _matrix_digits(
    space: Space, spread: Spread, count: int, matrices: int
) -> tuple[int, ...] | None:
    """The binary value digits that number the matrices of one issue."""
    free = [digit for digit in spread.values[count:] if space.radix[digit] == 2]
    return tuple(free[:matrices]) if len(free) >= matrices else None


def matrix_run(spread: Spread, access: Access, bits: int) -> tuple[int, ...]:
    """The digits that must be the first ones in memory: those of a 16-byte row."""
    if access.instructions[0].endswith(".trans"):
        return spread.threads[2:5]
    return (*spread.values[: prefix_digits(bits)], *spread.threads[:2])


def vector_accesses(
    space: Space, spread: Spread, tile: Tile, place: Placement, load: bool, pinned: str
) -> Iterator[Access]:
    """Plain loads or stores of what lies side by side in memory and in one thread, widest first."""
    name = "ld.{}" if load else "st.{}"
    packed = prefix_digits(tile.bits)
    guards = () if load else space.replicated(spread.threads)
    for width in WIDTHS:
        count = (width // tile.bits).bit_length() - 1
        if count < 0 or (pinned and pinned not in (name.format(width), name[:2])):
            continue
        elements = place.order[:count]
        if not place.leads(elements) or len(elements) < count:
            continue
        together = min(count, packed)
        if any(d not in spread.values for d in elements) or (
            tuple(elements[:together]) != spread.values[:together]
        ):
            continue
        issues = tuple(digit for digit in spread.values if digit not in elements)
        yield Access((name.format(width),), width, elements, issues, spread.threads, guards)


def unaligned(space: Space, tile: Tile, place: Placement, access: Access) -> Rejection | None:
    """Why an access of this width may meet an address in global memory that is no multiple of
    it."""
    size = access.bits // 8
    if tile.alignment % size:
        return Rejection(
            "base-alignment",
            f"{tile.name}: address aligned to {tile.alignment} B, "
            f"{access.instructions[0]} needs {size} B",
        )
    for digit, stride in place.strides.items():
        if digit not in access.elements and stride * tile.bits % access.bits:
            return Rejection(
                "stride-alignment",
                f"{tile.name}: stride of {stride} elements = {stride * tile.bits / 8:g} B on axis "
                f"{space.axis[digit]}, {access.instructions[0]} needs a multiple of {size} B",
            )
    return _cut_by_bound(space, tile, access)


def _cut_by_bound(space: Space, tile: Tile, access: Access) -> Rejection | None:
    """Why an access would be partly beyond the points that are there."""
    for digit in access.elements:
        axis, points = space.axis[digit], space.step[digit] * space.radix[digit]
        if space.bounds.get(axis, 0) % points:
            return Rejection(
                "bound-alignment",
                f"{tile.name}: {space.bounds[axis]} points on axis {axis}, "
                f"{access.instructions[0]} needs a multiple of {points}",
            )
    return None


def transfers(
    space: Space,
    shared: Tile,
    place: Placement,
    memory: Placement,
    load: bool,
    pinned: str,
) -> Iterator[Access]:
    """Copies between global and shared memory by all threads, widest first: cp.async where it goes,
    a load and a store otherwise. Threads follow the global order, so that a warp's accesses are
    whole sectors."""
    kinds = [(f"cp.async.{width // 8}", width) for width in ASYNCHRONOUS] if load else []
    for width in WIDTHS:
        names: list[tuple[str, ...]] = [(name,) for name, own in kinds if own == width]
        names.append((f"ld.{width}", f"st.{width}"))
        count = (width // shared.bits).bit_length() - 1
        if count < 0:
            continue
        elements = place.order[:count]
        if len(elements) < count or not (place.leads(elements) and memory.leads(elements)):
            continue
        if not place.aligned(count, shared.bits):
            continue
        for instructions in names:
            if pinned and not any(
                name == pinned or name.startswith(pinned + ".") for name in instructions
            ):
                continue
            rest = [digit for digit in memory.order if digit not in elements]
            dealt = deal(space, rest)
            guards = space.replicated(dealt.threads)
            yield Access(instructions, width, elements, dealt.values, dealt.threads, guards)


def phase_of(space: Space, access: Access, place: Placement, bits: int) -> Phase:
    """The access as shared memory sees it."""
    strides = place.strides
    width = 16 if access.matrix else access.bits // 8
    lanes = access.threads[:LANE_DIGITS]
    own = phase_digits(width)
    in_bytes = {digit: stride * bits // 8 for digit, stride in strides.items()}
    others = (*lanes[own:], *access.threads[LANE_DIGITS:], *access.issues)
    times = space.size(access.issues)
    if access.matrix:
        times *= 1 << (access.bits // 32).bit_length() - 1
    for stride, radix in space.threads[LANE_DIGITS if access.matrix else own :]:
        times *= 1 if (stride, radix) in access.guards else radix
    inside = tuple(in_bytes.get(digit, 0) for digit in lanes[:own])
    outside = tuple((space.radix[digit], in_bytes[digit]) for digit in others if digit >= 0)
    linear = _translates(inside, outside)
    return Phase(inside, () if linear else outside, width, times, linear)


def _translates(lanes: tuple[int, ...], others: tuple[tuple[int, int], ...]) -> bool:
    """Whether every phase is a translate of the first: no carry reaches from the lanes' offsets
    into others that are no powers of two or no bits."""
    odd = [step & -step for radix, step in others if step and (radix != 2 or step & step - 1)]
    least = min(odd, default=0)
    return not any(lane & lane - 1 or (least and lane >= least) for lane in lanes)


def sectors(space: Space, access: Access, place: Placement, bits: int) -> int:
    """32-byte sectors that one access of a warp touches in global memory, for the worst access of
    the block; the tile's first element starts a sector."""
    strides = place.strides
    in_bytes = {digit: stride * bits // 8 for digit, stride in strides.items()}
    starts = {0}
    for offset in {in_bytes.get(digit, 0) for digit in access.threads[:LANE_DIGITS]}:
        starts |= {start + offset for start in starts}
    size = max(1, access.bits // 8)
    return max(
        len(
            {
                at // SECTOR
                for start in starts
                for at in (start + residue, start + residue + size - 1)
            }
        )
        for residue in _residues(space, access, in_bytes)
    )


def _residues(space: Space, access: Access, in_bytes: dict[int, int]) -> set[int]:
    """Where in a sector the accesses of warps and issues begin."""
    found = {0}
    for digit in (*access.threads[LANE_DIGITS:], *access.issues):
        step = in_bytes.get(digit, 0)
        if step % SECTOR:
            found = {
                (start + step * at) % SECTOR for start in found for at in range(space.radix[digit])
            }
    return found


def coalesced(space: Space, place: Placement, limit: int, rows_first: bool) -> Spread:
    """The spread of an anchor copy: `limit` digits of the contiguous run to each thread, lanes
    along the rising stride, then warps: on along the stride, or first along other axes
    (`rows_first`), so that what is combined along the contiguous axis stays within a warp."""
    run: list[int] = []
    for digit in place.order[:limit]:
        if not place.leads((*run, digit)):
            break
        run.append(digit)
    left = [digit for digit in place.order if digit not in run]
    rest = [digit for digit in left if space.radix[digit] == 2]
    odd = [digit for digit in left if space.radix[digit] != 2]
    if rows_first and run:
        axis = space.axis[run[0]]
        lanes, after = rest[:LANE_DIGITS], rest[LANE_DIGITS:]
        rest = [*lanes, *sorted(after, key=lambda digit: space.axis[digit] == axis)]
    dealt = deal(space, (*rest, *odd))
    return Spread(dealt.threads, (*run, *dealt.values))
