"""Instruction rows of CPUs: data, chosen by what the host has. A new instruction is a new row.

A row that multiplies and accumulates consumes `depth` consecutive elements of the reduction axis;
its lane operand holds them interleaved ([k / depth][lane][depth]), its row operand contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A vector register file: `lanes` f32 lanes in each of `registers` registers."""

    isa: str
    lanes: int
    registers: int
    fma: bool = True
    scales: bool = False  # has the FRACTION and SCALE rows


@dataclass(frozen=True, slots=True)
class DotRow:
    """acc[lane] += sum over d < depth of row[d] * lane_operand[lane][d].

    `operand` is the dtype that both operands are packed to; `accepts` the dtypes that convert to it
    exactly. `kind` "vector": one broadcast row and one vector; "tile": `tile` rows at a time.
    """

    name: str
    isa: str
    kind: str
    operand: str
    accepts: tuple[str, ...]
    acc: str
    depth: int
    tile: int
    llvm: str
    llvm_declaration: str
    c: str
    header: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("vector", "tile") or self.depth < 1:
            raise ValueError(f"instruction row {self.name} is malformed")
        if self.llvm and not self.llvm_declaration.count("@" + self.llvm + "("):
            raise ValueError(f"instruction row {self.name}: declaration of another intrinsic")


VECTORS: tuple[VectorRow, ...] = (
    VectorRow("avx512f", 16, 32, scales=True),
    VectorRow("avx2", 8, 16),
    VectorRow("scalar", 4, 16, fma=False),
)

FMA = DotRow(
    "fma",
    "",
    "vector",
    "f32",
    ("f32", "f64", "bf16", "f16", "i8", "u8", "i32"),
    "f32",
    1,
    1,
    "",
    "",
    "",
)

DOTS: tuple[DotRow, ...] = (
    FMA,
    DotRow(
        "vdpbf16ps",
        "avx512_bf16",
        "vector",
        "bf16",
        ("bf16",),
        "f32",
        2,
        1,
        "llvm.x86.avx512bf16.dpbf16ps.512",
        "<16 x float> @llvm.x86.avx512bf16.dpbf16ps.512"
        "(<16 x float>, <32 x bfloat>, <32 x bfloat>)",
        "(v16f32)_mm512_dpbf16_ps((__m512){0}, (__m512bh){1}, (__m512bh){2})",
        "immintrin.h",
    ),
    DotRow(
        "vpdpwssd",
        "avx512_vnni",
        "vector",
        "i16",
        ("i8", "u8"),
        "i32",
        2,
        1,
        "llvm.x86.avx512.vpdpwssd.512",
        "<16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32>, <32 x i16>, <32 x i16>)",
        "(v16i32)_mm512_dpwssd_epi32((__m512i){0}, (__m512i){1}, (__m512i){2})",
        "immintrin.h",
    ),
    DotRow(
        "tdpbf16ps",
        "amx_bf16",
        "tile",
        "bf16",
        ("bf16",),
        "f32",
        2,
        16,
        "llvm.x86.tdpbf16ps",
        "void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)",
        "_tile_dpbf16ps({0}, {1}, {2})",
        "immintrin.h",
    ),
    DotRow(
        "tdpbssd",
        "amx_int8",
        "tile",
        "i8",
        ("i8",),
        "i32",
        4,
        16,
        "llvm.x86.tdpbssd",
        "void @llvm.x86.tdpbssd(i8 immarg, i8 immarg, i8 immarg)",
        "_tile_dpbssd({0}, {1}, {2})",
        "immintrin.h",
    ),
)


@dataclass(frozen=True, slots=True)
class TileRow:
    """An instruction that moves or clears tile registers."""

    name: str
    llvm: str
    llvm_declaration: str
    c: str
    header: str = "immintrin.h"


TILE_LOAD = TileRow(
    "tileload",
    "llvm.x86.tileloadd64",
    "void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
    "_tile_loadd({0}, {1}, {2})",
)
TILE_STORE = TileRow(
    "tilestore",
    "llvm.x86.tilestored64",
    "void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
    "_tile_stored({0}, {1}, {2})",
)
TILE_ZERO = TileRow(
    "tilezero", "llvm.x86.tilezero", "void @llvm.x86.tilezero(i8 immarg)", "_tile_zero({0})"
)
TILE_CONFIG = TileRow(
    "tileconfig", "llvm.x86.ldtilecfg", "void @llvm.x86.ldtilecfg(ptr)", "_tile_loadconfig({0})"
)
TILE_RELEASE = TileRow(
    "tilerelease", "llvm.x86.tilerelease", "void @llvm.x86.tilerelease()", "_tile_release()"
)


@dataclass(frozen=True, slots=True)
class CallRow:
    """An instruction on one whole vector, spelled as an intrinsic with `suffix` arguments."""

    name: str
    isa: str
    lanes: int
    llvm: str
    llvm_declaration: str
    suffix: str
    c: str
    header: str = "immintrin.h"


# x - floor(x), exactly, in one instruction; 0 for infinities
FRACTION = CallRow(
    "vreduceps",
    "avx512f",
    16,
    "llvm.x86.avx512.mask.reduce.ps.512",
    "<16 x float> @llvm.x86.avx512.mask.reduce.ps.512"
    "(<16 x float>, i32 immarg, <16 x float>, i16, i32 immarg)",
    "i32 1, <16 x float> zeroinitializer, i16 -1, i32 4",
    "(v16f32)_mm512_reduce_ps((__m512){0}, 1)",
)
# x * 2^floor(y), right at both ends of the range
SCALE = CallRow(
    "vscalefps",
    "avx512f",
    16,
    "llvm.x86.avx512.mask.scalef.ps.512",
    "<16 x float> @llvm.x86.avx512.mask.scalef.ps.512"
    "(<16 x float>, <16 x float>, <16 x float>, i16, i32 immarg)",
    "<16 x float> zeroinitializer, i16 -1, i32 4",
    "(v16f32)_mm512_scalef_ps((__m512){0}, (__m512){1})",
)


def vector_row(isa: tuple[str, ...]) -> VectorRow:
    """The widest vector row that the host has."""
    return next(row for row in VECTORS if row.isa in isa or row.isa == "scalar")


def dot_rows(isa: tuple[str, ...], dtype: str, acc: str) -> tuple[DotRow, ...]:
    """Rows that multiply operands of `dtype` into `acc` on this host, FMA first."""
    wide = "avx512f" in isa
    found = [FMA]
    found += [
        row
        for row in DOTS[1:]
        if row.isa in isa and wide and dtype in row.accepts and row.acc == acc
    ]
    return tuple(found)


def dot_row(name: str) -> DotRow:
    """The row called `name`."""
    return next(row for row in DOTS if row.name == name)
