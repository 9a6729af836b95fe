"""Programs that must be refused: each with its reason code, and both numbers that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ir.layout.errors import LayoutError
from ir.layout.synthesis import Pins, Tile, TileOp, TileProgram, synthesise
from ir.layout.synthesis.codes import CODES
from tests.layout.catalogue import held, near, op, outer


def product(
    dtype: str = "bf16",
    m: int = 64,
    n: int = 64,
    k: int = 64,
    family: str = "wgmma",
    threads: int = 128,
    pitch: int = 4096,
    alignment: int = 16,
    pins: Pins | None = None,
    target: str = "sm_90a",
    **facts: int,
) -> TileProgram:
    """c += a b^T from global memory through shared memory; "mma" reads registers."""
    tiles = [
        outer("a_g", dtype, {"m": m, "k": k}, "k", pitch, alignment), near("a_s", dtype, m=m, k=k),
        outer("b_g", dtype, {"n": n, "k": k}, "k", pitch, alignment), near("b_s", dtype, n=n, k=k),
        held("c", "f32", m=m, n=n), outer("c_g", "f32", {"m": m, "n": n}, "n"),
    ]  # fmt: skip
    steps = [op("copy", "a_g", "a_s"), op("copy", "b_g", "b_s"), op("fill", "", "c", value=0)]
    operands = "a_s b_s"
    if family == "mma":
        tiles += [held("a", dtype, m=m, k=k), held("b", dtype, n=n, k=k)]
        steps += [op("copy", "a_s", "a"), op("copy", "b_s", "b")]
        operands = "a b"
    steps += [op("gemm", operands, "c", m="m", n="n", k="k"), op("copy", "c", "c_g")]
    pinned = pins or Pins(((len(steps) - 2, family),))
    return TileProgram("product", threads, tuple(tiles), tuple(steps), pinned, target, **facts)  # type: ignore[arg-type]


def changed(program: TileProgram, name: str, **facts: object) -> TileProgram:
    """The program with one tile's facts changed."""
    tiles = tuple(
        replace(tile, **facts) if tile.name == name else tile  # type: ignore[arg-type]
        for tile in program.tiles
    )
    return replace(program, tiles=tiles)


def moved(*tiles: Tile, steps: tuple[TileOp, ...], threads: int = 128) -> TileProgram:
    return TileProgram("moved", threads, tiles, steps)


def pinned_copy(
    instruction: str, pitch: int = 4096, alignment: int = 16, dtype: str = "bf16"
) -> TileProgram:
    """One copy from global to shared memory that must use `instruction`."""
    tiles = (
        outer("x_g", dtype, {"m": 64, "k": 64}, "k", pitch, alignment),
        near("x_s", dtype, m=64, k=64),
    )
    return TileProgram("pinned", 128, tiles, (op("copy", "x_g", "x_s"),), Pins(((0, instruction),)))


STRAIGHT = Pins(((3, "wgmma"),), swapped=((3, False),))

Refusal = tuple[str, Callable[[], TileProgram], str, tuple[str, ...]]

REFUSALS: tuple[Refusal, ...] = (
    # a program's form
    ("threads", lambda: product(threads=100), "thread-count", ("100", "32")),
    ("many threads", lambda: product(threads=1056), "thread-count", ("1056", "1024")),
    (
        "axis with two extents",
        lambda: moved(
            held("x", "f32", m=64), near("y", "f32", m=32), steps=(op("copy", "x", "y"),)
        ),
        "axis-extent",
        ("64", "32"),
    ),
    (
        "copy that converts",
        lambda: moved(
            held("x", "f32", m=64), near("y", "f16", m=64), steps=(op("copy", "x", "y"),)
        ),
        "copy-dtype",
        ("32 bits", "16 bits"),
    ),
    (
        "strides",
        lambda: moved(Tile("x", "f32", (("m", 8), ("n", 8)), "global", (8,)), steps=()),
        "global-strides",
        ("1", "2"),
    ),
    (
        "read too early",
        lambda: moved(
            held("x", "f32", m=64),
            held("y", "f32", m=64),
            steps=(op("map", "x", "y", expression="x"), op("fill", "", "x", value=0)),
        ),
        "read-before-write",
        ("op 0",),
    ),
    # instructions of a gemm
    ("k", lambda: product(k=20, family="mma"), "k-extent", ("20", "8")),
    ("n", lambda: product(n=20, pins=STRAIGHT), "n-extent", ("20", "8")),
    ("m", lambda: product(m=80, pins=STRAIGHT), "m-extent", ("80", "64")),
    ("type", lambda: product("f32"), "operand-types", ("f32", "32 bits", "sm_90")),
    ("half a group", lambda: product(threads=96), "warp-group", ("96", "128")),
    ("old target", lambda: product(target="sm_80"), "no-instruction", ("sm_80",)),
    (
        "registers for wgmma",
        lambda: changed(changed(product(), "a_s", scope="register"), "b_s", scope="register"),
        "wgmma-operand-scope",
        ("register", "shared"),
    ),
    (
        "warps",
        lambda: product(m=64, n=8, family="mma", threads=256),
        "warp-division",
        ("8 warps", "64", "8"),
    ),
    (
        "pinned warps",
        lambda: product(
            family="mma", pins=Pins(warps=((5, (8, 1)),), swapped=((5, False),)), threads=256
        ),
        "warp-division",
        ("8 x 1", "64"),
    ),
    (
        "pinned warps that are not all",
        lambda: product(family="mma", pins=Pins(warps=((5, (2, 1)),))),
        "pinned-warps",
        ("2 x 1", "4 warps"),
    ),
    (
        "no such instruction",
        lambda: product(pins=Pins(((3, "wgmma.m64n60k16.bf16.ss"),))),
        "unknown-instruction",
        ("m64n60k16",),
    ),
    # totals
    (
        "registers",
        lambda: product(m=256, n=256, threads=128),
        "registers",
        ("512", "255"),
    ),
    (
        "shared memory",
        lambda: product(m=256, n=256, k=256, threads=512),
        "shared-memory",
        ("262,144", "232,448"),
    ),
    # memory
    ("TMA stride", lambda: pinned_copy("tma.load", pitch=4100), "tma-stride", ("8200", "16")),
    ("TMA address", lambda: pinned_copy("tma.load", alignment=8), "tma-alignment", ("8 B", "16 B")),
    ("TMA type", lambda: pinned_copy("tma.load", dtype="i4"), "tma-dtype", ("i4", "4 bits")),
    (
        "cp.async stride",
        lambda: pinned_copy("cp.async.16", pitch=4100),
        "stride-alignment",
        ("8200", "16 B"),
    ),
    (
        "cp.async address",
        lambda: pinned_copy("cp.async.16", alignment=8),
        "base-alignment",
        ("8 B", "16 B"),
    ),
    (
        "elements apart",
        lambda: moved(
            outer("x_g", "f32", {"m": 64}, "m", alignment=2),
            held("x", "f32", m=64),
            steps=(op("copy", "x_g", "x"),),
        ),
        "no-copy",
        ("32-bit", "2 B"),
    ),
    (
        "shared to shared",
        lambda: moved(
            near("x", "f32", m=64), near("y", "f32", m=64), steps=(op("copy", "x", "y"),)
        ),
        "copy-scopes",
        ("x", "y", "shared"),
    ),
    # pinned layouts
    (
        "layout over too few threads",
        lambda: changed(product(), "c", layout="(64,64):(1,64)"),
        "pinned-layout",
        ("64", "128"),
    ),
    (
        "layout that misses elements",
        lambda: changed(product(), "c", layout="((64,2),16):((1,64),128)"),
        "pinned-layout",
        ("4096",),
    ),
    (
        "layout of a tile in memory",
        lambda: changed(product(), "b_s", layout="S(3,3,3) o 0 o (64,64):(64,1)"),
        "pinned-layout",
        ("b_s", "shared"),
    ),
)


@pytest.mark.parametrize(
    ("build", "code", "numbers"),
    [case[1:] for case in REFUSALS],
    ids=[case[0] for case in REFUSALS],
)
def test_refused_with_code_and_numbers(
    build: Callable[[], TileProgram], code: str, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(LayoutError) as caught:
        synthesise(build())
    assert caught.value.code == code, str(caught.value)
    for number in numbers:
        assert number in str(caught.value)


def test_every_code_is_documented() -> None:
    own = {case[2] for case in REFUSALS} - {"unknown-instruction"}
    assert own <= set(CODES)


def test_what_is_refused_is_one_step_from_what_is_solved() -> None:
    """The programs that the refusals change have solutions themselves."""
    for program in (product(), product(family="mma"), pinned_copy("tma.load")):
        assert synthesise(program, limit=1)
    assert synthesise(pinned_copy("cp.async.16"), limit=1)


def test_reasons_name_only_known_codes() -> None:
    for program in (product(pitch=4100), product(family="mma", alignment=8)):
        for solution in synthesise(program, limit=2):
            assert {reason.code for reason in solution.reasons} <= set(CODES)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(LayoutError, match="at least 1"):
        synthesise(product(), limit=limit)
