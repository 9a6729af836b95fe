"""What solutions must show beyond being right: no needless conversion, wide copies, replication."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ir.layout.banks import conflicts_by_rank
from ir.layout.swizzle import Swizzle
from ir.layout.synthesis import (
    CopyPlan,
    GemmPlan,
    Pins,
    ReducePlan,
    Solution,
    Tile,
    TileProgram,
    synthesise,
)
from ir.layout.synthesis.memory import Phase, best_swizzle, phase_digits, total
from tests.few import by_turns
from tests.layout.catalogue import (
    Gemm,
    attention,
    folding,
    held,
    near,
    normalisation,
    op,
    outer,
    packed_weights,
    transposition,
)
from tests.layout.checker import check
from tests.layout.plain import as_data


def best(program: TileProgram) -> Solution:
    """The best solution, checked."""
    solution = synthesise(program, limit=1)[0]
    found = check(program, as_data(solution))
    assert not found, str(found)
    return solution


def gemms(solution: Solution) -> list[GemmPlan]:
    return [step for step in solution.steps if isinstance(step, GemmPlan)]


def copies(solution: Solution) -> dict[tuple[str, str], CopyPlan]:
    found = [step for step in solution.steps if isinstance(step, CopyPlan)]
    return {(step.source, step.target): step for step in found}


@pytest.mark.parametrize("family", ["mma", "wgmma"])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_an_accumulator_feeds_the_next_product_without_conversion(dtype: str, family: str) -> None:
    rows, threads = (64, 128) if family == "mma" else (128, 256)
    solution = best(attention(dtype, family, rows, 64, 64, threads))
    assert solution.conversions == ()
    first, second = gemms(solution)
    natural = (first.n_order, second.k_order)
    if dtype == "e4m3":
        assert any(not in_order(order) for order in natural), natural
    else:
        assert all(in_order(order) for order in natural), natural


def in_order(order: str) -> bool:
    """Whether (instruction index, repeat) counts up from 0 in steps of 1."""
    from ir.layout.layout import Layout

    table = Layout.parse(order).offsets()
    return bool((np.sort(table) == table).all())


def test_packed_weights_load_16_bytes_a_lane_by_permuting_k() -> None:
    solution = best(packed_weights("mma", 64, 32, 128, 128))
    assert solution.conversions == ()
    loaded = copies(solution)["w_s", "w_r"]
    assert (loaded.instructions, loaded.bits, loaded.elements) == (("ld.128",), 128, 32)
    assert not in_order(gemms(solution)[0].k_order)
    assert copies(solution)["x_s", "x_r"].bits == 128


def test_natural_k_where_nothing_asks_for_another() -> None:
    for family in ("mma", "wgmma"):
        solution = best(Gemm("bf16", 64, 64, 64, family).program())
        assert in_order(gemms(solution)[0].k_order)


def test_a_reduction_s_result_is_known_to_be_replicated() -> None:
    solution = best(attention("bf16", "wgmma", 128, 64, 64, 256))
    top = solution.tile("top")
    assert top.replicated == ((1, 2), (2, 2))
    reduced = [step for step in solution.steps if isinstance(step, ReducePlan)]
    assert all(step.lanes == (1, 2) and not step.digits for step in reduced)


def test_a_row_wider_than_a_warp_meets_in_shared_memory() -> None:
    solution = best(normalisation(2, 2048, 256))
    (reduced,) = [step for step in solution.steps if isinstance(step, ReducePlan)]
    assert reduced.digits
    assert reduced.scratch_bytes > 0
    assert solution.shared_bytes == reduced.scratch_bytes
    places = {(stride, 2) for stride in reduced.lanes} | set(reduced.digits)
    assert set(reduced.replicated) == places
    assert places <= set(solution.tile("total").replicated)


def test_rows_stay_within_warps_where_they_can() -> None:
    solution = best(folding("sum", "n", 64, 128, 128))
    (reduced,) = [step for step in solution.steps if isinstance(step, ReducePlan)]
    assert not reduced.digits


@pytest.mark.parametrize(("dtype", "ways"), [("f16", 1), ("f32", 2)])
def test_a_transposing_copy_moves_16_bytes_both_ways(dtype: str, ways: int) -> None:
    """Four bits of m must tell banks apart in f32, and 16-byte writes leave an XOR three."""
    solution = best(transposition(dtype, 64, 64, 128))
    for (source, target), plan in copies(solution).items():
        assert plan.ways <= ways
        if "_g" in source or "_g" in target:
            assert plan.tma is not None or plan.bits == 128


def test_three_warp_groups_divide_the_rows() -> None:
    solution = best(Gemm("bf16", 192, 128, 64, "wgmma", threads=384).program())
    assert gemms(solution)[0].warps == (3, 1)


def test_stages_are_whole_patterns_apart() -> None:
    program = Gemm("bf16", 64, 24, 64, "wgmma").program()
    tiles = tuple(
        replace(tile, stages=3) if tile.scope == "shared" else tile for tile in program.tiles
    )
    solution = synthesise(replace(program, tiles=tiles), limit=1)[0]
    for tile in solution.tiles:
        if tile.scope == "shared":
            assert tile.stages == 3
            assert tile.bytes % tile.alignment == 0
    assert solution.shared_bytes >= 3 * (64 * 64 + 24 * 64) * 2


def test_an_older_target_has_no_bulk_copies() -> None:
    program = replace(Gemm("f16", 64, 64, 64, epilogue="staged").program(), target="sm_80")
    solution = best(program)
    used = {name for plan in copies(solution).values() for name in plan.instructions}
    assert used >= {"cp.async.16", "ldmatrix.x4"}
    assert not {name for name in used if name.startswith(("tma", "stmatrix"))}


def test_pinned_warps_and_roles_are_kept() -> None:
    program = Gemm("f16", 64, 64, 64, "mma").program()
    (at,) = [at for at, step in enumerate(program.ops) if step.kind == "gemm"]
    for swapped, warps in ((False, (1, 4)), (True, (2, 2))):
        pins = Pins(warps=((at, warps),), swapped=((at, swapped),))
        (plan,) = gemms(best(replace(program, pins=pins)))
        assert plan.swapped == swapped
        assert plan.warps == (warps[::-1] if swapped else warps)


def pinned_chain(first: str, second: str, dtype: str = "f32") -> TileProgram:
    """x -> y elementwise, where the author has pinned both spreads of 32 x 4 elements."""
    tiles = (
        outer("x_g", dtype, {"m": 32, "n": 4}, "n"),
        Tile("x", dtype, (("m", 32), ("n", 4)), "register", layout=first),
        Tile("y", dtype, (("m", 32), ("n", 4)), "register", layout=second),
        outer("y_g", dtype, {"m": 32, "n": 4}, "n"),
    )
    steps = (
        op("copy", "x_g", "x"), op("map", "x", "y", expression="x + x"), op("copy", "y", "y_g"),
    )  # fmt: skip
    return TileProgram("chain", 32, tiles, steps)


ROWS = "(32,4):(1,32)"
EVERYBODY = "(32,(4,32)):(0,(32,1))"


@pytest.mark.parametrize(
    ("first", "second", "price"),
    [
        (ROWS, ROWS, []),
        (ROWS, "(32,(2,2)):(1,(64,32))", []),  # other order of values: the map renames
        (EVERYBODY, ROWS, ["rename"]),  # every thread has all: it keeps its own
        (ROWS, "((2,16),(2,2)):((32,2),(1,64))", ["shuffle"]),
        (ROWS, "((16,2),4):((2,1),32)", ["shuffle"]),
        (ROWS, EVERYBODY, ["shuffle", "shared"]),  # all lanes get everything
    ],
)
def test_derivations_that_disagree_cost_the_cheapest_conversion(
    first: str, second: str, price: list[str]
) -> None:
    solution = best(pinned_chain(first, second))
    assert bool(price) == bool(solution.conversions)
    for plan in solution.conversions:
        assert plan.price_class in price
        assert plan.why


def test_what_crosses_warps_goes_through_shared_memory() -> None:
    tiles = (
        outer("x_g", "f32", {"m": 64, "n": 8}, "n"),
        Tile("x", "f32", (("m", 64), ("n", 8)), "register", layout="(64,8):(1,64)"),
        Tile("y", "f32", (("m", 64), ("n", 8)), "register", layout="((32,2),8):((2,1),64)"),
        outer("y_g", "f32", {"m": 64, "n": 8}, "n"),
    )
    steps = (
        op("copy", "x_g", "x"), op("map", "x", "y", expression="x * x"), op("copy", "y", "y_g"),
    )  # fmt: skip
    solution = best(TileProgram("crossing", 64, tiles, steps))
    (plan,) = solution.conversions
    assert plan.price_class == "shared"
    assert plan.store is not None
    assert plan.load is not None
    assert plan.store.ways == plan.load.ways == 1
    assert solution.shared_bytes == 64 * 8 * 4


def drawn(seed: int) -> TileProgram:
    """A chain of copies, maps and a reduction with random types, extents and pinned spreads."""
    from ir.layout.synthesis.digits import Space, Spread

    random = np.random.default_rng(seed)
    m, n = int(random.choice([16, 32, 48])), int(random.choice([16, 32, 80]))
    dtype = str(random.choice(["f32", "bf16", "f16"]))
    axes = (("m", m), ("n", n))
    along = str(random.choice(["m", "n"]))
    tiles = [
        outer("x_g", dtype, dict(axes), along, 128), held("x", dtype, m=m, n=n),
        held("y", dtype, m=m, n=n), held("s", "f32", m=m), held("z", dtype, n=n, m=m),
        near("z_s", dtype, m=m, n=n), held("w", dtype, m=m, n=n),
        outer("w_g", dtype, dict(axes), "n", 128), outer("s_g", "f32", {"m": m}, "m"),
    ]  # fmt: skip
    steps = (
        op("copy", "x_g", "x"), op("map", "x", "y", expression="x + x"),
        op("reduce", "y", "s", axis="n", fn="max"),
        op("map", "y s x", "z", expression="maximum(y, s) - x"), op("copy", "z", "z_s"),
        op("copy", "z_s", "w"), op("copy", "w", "w_g"), op("copy", "s", "s_g"),
    )  # fmt: skip
    threads = int(random.choice([32, 64, 96, 128, 256]))
    bare = TileProgram(f"drawn_{seed}", threads, tuple(tiles), steps)
    space = Space(bare)
    for at, tile in enumerate(tiles):
        if tile.scope != "register" or len(tile.axes) < 2 or random.random() < 0.5:
            continue
        left = [int(digit) for digit in random.permutation(list(space.digits(tile)))]
        owners = []
        for _, radix in space.threads:  # all lanes used: stores by part of a warp are not drawn
            fitting = [digit for digit in left if space.radix[digit] == radix]
            owners.append(fitting[0] if fitting else -1)
            left = [digit for digit in left if digit != owners[-1]]
        if -1 not in owners[:5]:
            pinned = space.spread_text(Spread(tuple(owners), tuple(left)), tile)
            tiles[at] = replace(tile, layout=pinned)
    return replace(bare, tiles=tuple(tiles))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.alike(2)
def test_random_spreads_convert_rightly(seed: int) -> None:
    program = drawn(seed)
    for solution in synthesise(program, limit=2):
        found = check(program, as_data(solution))
        assert not found, str(found)


@pytest.mark.parametrize(
    ("dtype", "threads"), by_turns(["f32", "bf16", "i8", "i64"], [32, 96, 1024])
)
@pytest.mark.parametrize("extents", [(1,), (3,), (7, 5), (15, 9, 2), (4, 2, 8, 6), (1000,)])
@pytest.mark.alike(2)
def test_any_extents_can_be_copied(extents: tuple[int, ...], dtype: str, threads: int) -> None:
    """One element, odd extents, fewer elements than threads, more axes than a box has."""
    axes = dict(zip("abcd", extents, strict=False))
    tiles = (
        outer("x_g", dtype, axes, list(axes)[-1], 1024), near("x_s", dtype, **axes),
        held("x", dtype, **axes), held("y", dtype, **axes),
        outer("y_g", dtype, axes, next(iter(axes)), 1024),
    )  # fmt: skip
    steps = (
        op("copy", "x_g", "x_s"), op("copy", "x_s", "x"), op("map", "x", "y", expression="x + x"),
        op("copy", "y", "y_g"),
    )  # fmt: skip
    best(TileProgram("any", threads, tiles, steps))


def test_a_shared_tile_that_nothing_uses_has_a_layout() -> None:
    solution = synthesise(TileProgram("idle", 32, (near("x", "f32", m=8),), ()))[0]
    assert solution.tile("x").bytes == 32


def fewest(accesses: list[tuple[int, tuple[int, ...]]]) -> int:
    """Wavefronts under the best swizzle of 12 bits that leaves each access's vector whole.

    An access: the bytes of a lane, the bases of its lane bits in bytes.
    """
    widest = max(width for width, _ in accesses).bit_length() - 1
    return min(
        sum(
            sum(conflicts_by_rank([swizzle(base) for base in bases], width).phases)
            for width, bases in accesses
        )
        for base in range(widest, 13)
        for bits in range(min(6, 14 - base))
        for shift in range(bits, 14 - base - bits)
        for swizzle in (Swizzle(bits, base, shift),)
    )


def test_the_chosen_swizzle_is_as_good_as_the_best_by_rank() -> None:
    """Random pairs of accesses to a 64 x 64 tile of 2-byte elements, against all swizzles."""
    random = np.random.default_rng(7)
    for _ in range(60):
        accesses, phases = [], []
        for vector in random.choice([1, 2, 3], 2):
            width = 2 << int(vector)
            bits = [int(bit) for bit in random.permutation(range(int(vector), 12))[:5]]
            lanes = tuple(2 << bit for bit in bits)
            accesses.append((width, lanes))
            own = phase_digits(width)
            phases.append(Phase(lanes[:own], (), width, 1 << 5 - own, True))
        chosen, rounds = best_swizzle(phases, None)
        assert rounds == total(phases, chosen)
        assert rounds == fewest(accesses)
