"""Copies of one thread: vector loads and stores, cp.async (PTX ISA,
"Data movement and conversion instructions"). Data only; the widest of a kind comes first.
"""

from __future__ import annotations

from ir.layout.instructions.rows import CopyRow
from ir.layout.layout import Layout


def _row(
    name: str,
    kind: str,
    width: int,
    requires: str,
) -> CopyRow:
    own_bits = Layout((1, width), (0, 1))
    return CopyRow(
        name=name,
        kind=kind,
        threads=1,
        bits=width,
        alignment=width // 8,
        extents=(width, 1),
        source=own_bits,
        destination=own_bits,
        requires=requires,
    )


ROWS: tuple[CopyRow, ...] = (
    *(_row(f"ld.{width}", "load", width, "sm_70") for width in (128, 64, 32, 16, 8)),
    *(_row(f"st.{width}", "store", width, "sm_70") for width in (128, 64, 32, 16, 8)),
    *(_row(f"cp.async.{octets}", "cp.async", 8 * octets, "sm_80") for octets in (16, 8, 4)),
)
