"""Instruction rows of CPUs: data, chosen by what the host has. A new instruction is a new row.

A row that multiplies and accumulates consumes `depth` consecutive elements of the reduction axis;
its lane operand holds them interleaved ([k / depth][lane][depth]), its row operand contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.dtypes import dtype_of


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

    `row` and `lane` are the dtypes that the operands are packed to. `kind` "vector": one broadcast
    row and one vector; "tile": `tile` rows at a time. `lane_first`: the intrinsic takes the lane
    operand before the row operand. `moved`: it takes the row operand as unsigned bytes, so that
    signed ones are packed moved up by MOVED, and MOVED times the sum of the lane operand comes off
    the result: sum (r + 128) l - 128 sum l = sum r l, exactly, modulo 2^32.
    """

    name: str
    isa: str
    kind: str
    row: str
    lane: str
    acc: str
    depth: int
    tile: int
    llvm: str
    llvm_declaration: str
    c: str
    header: str = ""
    lane_first: bool = False
    moved: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("vector", "tile") or self.depth < 1:
            raise ValueError(f"instruction row {self.name} is malformed")
        if packed_bytes(self.row) != packed_bytes(self.lane):
            raise ValueError(f"instruction row {self.name}: operands of two widths")
        if self.llvm and not self.llvm_declaration.count("@" + self.llvm + "("):
            raise ValueError(f"instruction row {self.name}: declaration of another intrinsic")

    @property
    def element(self) -> int:
        """Bytes of one element of either operand."""
        return packed_bytes(self.row)

    def multiplies(self, row: str, lane: str) -> bool:
        """Whether operands of these dtypes convert exactly to what it reads."""
        return row in EXACTLY[self.row] and lane in EXACTLY[self.lane]


MOVED = 128  # what signed bytes are moved up by for an instruction that takes unsigned ones

# what an operand is packed to: the dtypes that convert to it exactly
EXACTLY = {
    "f32": ("f32", "tf32", "bf16", "f16", "e4m3", "e5m2", "e2m1", "e8m0",
            "i16", "u16", "i8", "u8", "i4", "u4", "i2"),
    "bf16": ("bf16", "e4m3", "e5m2", "e2m1", "i8", "u8", "i4", "u4", "i2"),
    "i16": ("i16", "i8", "u8", "i4", "u4", "i2"),
    "i8": ("i8", "i4", "u4", "i2"),
    "u8": ("u8", "u4"),
}  # fmt: skip


def packed_bytes(dtype: str) -> int:
    """Bytes of one element of a packed operand."""
    return dtype_of(dtype).bytes


VECTORS: tuple[VectorRow, ...] = (
    VectorRow("avx512f", 16, 32, scales=True),
    VectorRow("avx2", 8, 16),
    VectorRow("scalar", 4, 16, fma=False),
)

FMA = DotRow("fma", "", "vector", "f32", "f32", "f32", 1, 1, "", "", "")


def _vector_dot(
    name: str, isa: str, row: str, lane: str, acc: str, llvm: tuple[str, str, str], c: str,
    lane_first: bool = False, moved: bool = False,
) -> DotRow:  # fmt: skip
    """A row of 512-bit vectors; `llvm`: its intrinsic, types of accumulator and operands."""
    suffix, accumulator, operands = llvm
    intrinsic = f"llvm.x86.{suffix}.512"
    declaration = f"{accumulator} @{intrinsic}({accumulator}, {operands}, {operands})"
    depth = 4 // packed_bytes(row)
    return DotRow(
        name, isa, "vector", row, lane, acc, depth, 1, intrinsic, declaration, c, "immintrin.h",
        lane_first, moved,
    )  # fmt: skip


def _tile_dot(name: str, isa: str, row: str, lane: str, acc: str) -> DotRow:
    """A row of AMX tiles: 16 rows by 16 lanes."""
    intrinsic = f"llvm.x86.{name}"
    declaration = f"void @{intrinsic}(i8 immarg, i8 immarg, i8 immarg)"
    c = f"_tile_{name[1:]}({{0}}, {{1}}, {{2}})"
    depth = 4 // packed_bytes(row)
    return DotRow(
        name, isa, "tile", row, lane, acc, depth, 16, intrinsic, declaration, c, "immintrin.h"
    )


_DPBUSD = ("avx512.vpdpbusd", "<16 x i32>", "<64 x i8>")
_DPBUSD_C = "(v16i32)_mm512_dpbusd_epi32((__m512i){0}, (__m512i){1}, (__m512i){2})"

DOTS: tuple[DotRow, ...] = (
    FMA,
    _vector_dot(
        "vdpbf16ps", "avx512_bf16", "bf16", "bf16", "f32",
        ("avx512bf16.dpbf16ps", "<16 x float>", "<32 x bfloat>"),
        "(v16f32)_mm512_dpbf16_ps((__m512){0}, (__m512bh){1}, (__m512bh){2})",
    ),
    _vector_dot(
        "vpdpwssd", "avx512_vnni", "i16", "i16", "i32",
        ("avx512.vpdpwssd", "<16 x i32>", "<32 x i16>"),
        "(v16i32)_mm512_dpwssd_epi32((__m512i){0}, (__m512i){1}, (__m512i){2})",
    ),
    _vector_dot(
        "vpdpbusd.moved", "avx512_vnni", "i8", "i8", "i32", _DPBUSD, _DPBUSD_C, moved=True
    ),
    # unsigned by signed: the unsigned operand comes first, in the row or in the lanes
    _vector_dot("vpdpbusd", "avx512_vnni", "u8", "i8", "i32", _DPBUSD, _DPBUSD_C),
    _vector_dot("vpdpbusd.lanes", "avx512_vnni", "i8", "u8", "i32", _DPBUSD, _DPBUSD_C, True),
    _tile_dot("tdpbf16ps", "amx_bf16", "bf16", "bf16", "f32"),
    _tile_dot("tdpbssd", "amx_int8", "i8", "i8", "i32"),
    _tile_dot("tdpbusd", "amx_int8", "u8", "i8", "i32"),
    _tile_dot("tdpbsud", "amx_int8", "i8", "u8", "i32"),
    _tile_dot("tdpbuud", "amx_int8", "u8", "u8", "i32"),
)  # fmt: skip


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
    source: str = "f32"
    target: str = "f32"


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


def _f16(isa: str, lanes: int, source: str, llvm: str, extra: str, suffix: str, c: str) -> CallRow:
    """A row between f16 (its bits) and f32; an empty `llvm`: LLVM has no intrinsic but a cast."""
    types = {"f16": f"<{lanes} x i16>", "f32": f"<{lanes} x float>"}
    target = "f32" if source == "f16" else "f16"
    words = f"{types[target]} @llvm.x86.{llvm}({types[source]}, {extra})" if llvm else ""
    name = "vcvtph2ps" if source == "f16" else "vcvtps2ph"
    intrinsic = f"llvm.x86.{llvm}" if llvm else ""
    return CallRow(name, isa, lanes, intrinsic, words, suffix, c, source=source, target=target)


# between f32 and narrow floats, to nearest even
CONVERSIONS = (
    CallRow(
        "vcvtneps2bf16",
        "avx512_bf16",
        16,
        "llvm.x86.avx512bf16.cvtneps2bf16.512",
        "<16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float>)",
        "",
        "_mm512_cvtneps_pbh((__m512){0})",
        target="bf16",
    ),
    _f16("avx512f", 16, "f32", "avx512.mask.vcvtps2ph.512", "i32 immarg, <16 x i16>, i16",
         "i32 0, <16 x i16> zeroinitializer, i16 -1", "_mm512_cvtps_ph((__m512){0}, 0)"),
    _f16("avx512f", 16, "f16", "avx512.mask.vcvtph2ps.512", "<16 x float>, i16, i32 immarg",
         "<16 x float> zeroinitializer, i16 -1, i32 4", "_mm512_cvtph_ps((__m256i){0})"),
    _f16("avx2", 8, "f32", "vcvtps2ph.256", "i32 immarg", "i32 0",
         "_mm256_cvtps_ph((__m256){0}, 0)"),
    _f16("avx2", 8, "f16", "", "", "", "_mm256_cvtph_ps((__m128i){0})"),
    _f16("avx2", 0, "f16", "", "", "", "_cvtsh_ss({0})"),
    _f16("avx2", 0, "f32", "", "", "", "_cvtss_sh({0}, 0)"),
)  # fmt: skip


def vector_row(isa: tuple[str, ...]) -> VectorRow:
    """The widest vector row that the host has."""
    return next(row for row in VECTORS if row.isa in isa or row.isa == "scalar")


def dot_rows(isa: tuple[str, ...], dtypes: tuple[str, str], acc: str) -> tuple[DotRow, ...]:
    """Rows that multiply operands of `dtypes`, either in the lanes, into `acc`; FMA first."""
    wide = "avx512f" in isa
    found = [FMA]
    found += [
        row
        for row in DOTS[1:]
        if row.isa in isa and wide and row.acc == acc
        and (row.multiplies(*dtypes) or row.multiplies(*dtypes[::-1]))
    ]  # fmt: skip
    return tuple(found)


def dot_row(name: str) -> DotRow:
    """The row called `name`."""
    return next(row for row in DOTS if row.name == name)
