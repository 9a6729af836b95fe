"""Small tables that lie in vector registers: which instruction takes an entry for each lane.

A gather from memory takes a load for each lane, and tens of clocks on some machines; a permutation
by indices in a register takes one instruction. Intrinsics as in Intel's guide: vpermps takes an
entry of one register, vpermi2ps of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.targets.cpu.nest import MOST_CHOSEN


@dataclass(frozen=True, slots=True)
class PermuteRow:
    """Takes entries of `tables` registers of `lanes` floats each, at indices `at`.

    `llvm` is of indices behind the first table; `c` of vectors t0, t1 and `at`, where `macro` is
    defined.
    """

    isa: str
    lanes: int
    tables: int
    llvm: str
    both: bool  # the intrinsic takes both tables; else one is asked after the other
    macro: str
    c: str


_ONE = "_mm256_permutevar8x32_ps((__m256){0}, (__m256i)at)"
PERMUTES: tuple[PermuteRow, ...] = (
    PermuteRow("avx512f", 16, 1, "llvm.x86.avx512.permvar.sf.512", False, "__AVX512F__",
               "_mm512_permutexvar_ps((__m512i)at, (__m512)t0)"),
    PermuteRow("avx512f", 16, 2, "llvm.x86.avx512.vpermi2var.ps.512", True, "__AVX512F__",
               "_mm512_permutex2var_ps((__m512)t0, (__m512i)at, (__m512)t1)"),
    PermuteRow("avx2", 8, 1, "llvm.x86.avx2.permps", False, "__AVX2__", _ONE.format("t0")),
    PermuteRow("avx2", 8, 2, "llvm.x86.avx2.permps", False, "__AVX2__",
               f"_mm256_blendv_ps({_ONE.format('t0')}, {_ONE.format('t1')}, (__m256)(at << 28))"),
)  # fmt: skip
assert max(row.lanes * row.tables for row in PERMUTES) == MOST_CHOSEN


def permute_row(lanes: int, entries: int, isa: tuple[str, ...] | None = None) -> PermuteRow | None:
    """The instruction for vectors of `lanes` and so many entries, of any machine without `isa`."""
    tables = -(-entries // lanes)
    for row in PERMUTES:
        if (row.lanes, row.tables) == (lanes, tables) and (isa is None or row.isa in isa):
            return row
    return None


def in_registers(entries: tuple[float, ...], lanes: int) -> list[tuple[float, ...]]:
    """The entries as vectors, the last one filled up with zeros."""
    filled = (*entries, *[0.0] * (-len(entries) % lanes))
    return [filled[n : n + lanes] for n in range(0, len(filled), lanes)]
