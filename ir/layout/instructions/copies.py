"""Copies of one thread: vector loads and stores, cp.async (PTX ISA,
"Data movement and conversion instructions"). Data only; the widest of a kind comes first.
"""

from __future__ import annotations

from ir.layout.instructions.rows import CopyRow, Cost, Path
from ir.layout.layout import Layout

ISSUE = 2.0
GLOBAL_LATENCY = 280.0  # of a hit in L2; from memory about 480
SHARED_LOAD_LATENCY = 30.0
SHARED_STORE_LATENCY = 19.0
NOBODY_WAITS = 0.0

LOADS = (
    Path("global", "register", Cost(ISSUE, GLOBAL_LATENCY)),
    Path("shared", "register", Cost(ISSUE, SHARED_LOAD_LATENCY)),
)
STORES = (
    Path("register", "global", Cost(ISSUE, NOBODY_WAITS)),
    Path("register", "shared", Cost(ISSUE, SHARED_STORE_LATENCY)),
)
ASYNCHRONOUS = (Path("global", "shared", Cost(ISSUE, GLOBAL_LATENCY)),)


def _row(
    name: str,
    kind: str,
    width: int,
    paths: tuple[Path, ...],
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
        paths=paths,
        requires=requires,
    )


ROWS: tuple[CopyRow, ...] = (
    *(_row(f"ld.{width}", "load", width, LOADS, "sm_70") for width in (128, 64, 32, 16, 8)),
    *(_row(f"st.{width}", "store", width, STORES, "sm_70") for width in (128, 64, 32, 16, 8)),
    *(
        _row(f"cp.async.{octets}", "cp.async", 8 * octets, ASYNCHRONOUS, "sm_80")
        for octets in (16, 8, 4)
    ),
)
