"""The CPU target's spaces and texts: sizes, legality, determinism, refusals. Compiles nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, operator, reduce
from ir.dtypes import DTYPES, WHOLE_BYTES, DType
from ir.errors import UsageError
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.target import Hardware, get_backend

FACTS = (("l1_bytes", 49152), ("l2_bytes", 2097152), ("l3_bytes", 32 << 20))
WIDE = Hardware(
    "cpu",
    "test",
    ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"),
    2,
    FACTS,
)
NARROW = Hardware("cpu", "test", ("avx2",), 4, FACTS)
PLAIN = Hardware("cpu", "test", (), 1, FACTS)


@operator
def twice(g: Graph, m: int, n: int, dtype: str) -> None:
    """Sums of rows, and what was given."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), dtype)
    g.output("Y", x, dtype)
    g.output("S", reduce("max", x, columns))


def matmul(**extra: object) -> Program:
    return load_operator("matmul").build(m=1024, n=1024, k=1024, **extra)


def test_matmul_space_has_a_million_legal_schedules() -> None:
    summary = get_backend("cpu").space(matmul(), WIDE).describe(np.random.default_rng(0))
    assert summary.legal >= 10**6


@pytest.mark.parametrize("hardware", [WIDE, NARROW, PLAIN], ids=["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
@pytest.mark.alike(2)
def test_every_legal_schedule_lowers_to_the_same_bytes(hardware: Hardware, dtype: str) -> None:
    backend, program = get_backend("cpu"), matmul(dtype=dtype)
    space = backend.space(program, hardware)
    for row in space.sample(np.random.default_rng(1), 10):
        schedule = space.schedule(row)
        assert space.refusal(schedule) is None
        kernel = backend.lower(program, schedule, hardware)
        assert kernel.key == backend.lower(program, schedule, hardware).key
        if hardware is not WIDE:
            assert "avx512" not in kernel.text("llvm")
            assert "tdp" not in kernel.text("llvm")


def test_instructions_are_those_of_the_host() -> None:
    backend = get_backend("cpu")
    wide = backend.space(matmul(dtype="bf16"), WIDE).decision("instruction.s0").domain
    assert wide == ("fma", "vdpbf16ps", "tdpbf16ps")
    assert backend.space(matmul(dtype="bf16"), NARROW).decision("instruction.s0").domain == ("fma",)


def test_a_refusal_has_numbers() -> None:
    space = get_backend("cpu").space(matmul(), WIDE)
    values = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    refusal = space.refusal(Schedule.of("cpu", {**values, "rows.s0": 14, "vectors.s0": 8}))
    assert refusal is not None
    assert refusal.constraint == "registers.s0"
    assert "121 needed, 32 there" in refusal.detail


def test_an_unsupported_dtype_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, "e3m4", DType("e3m4", 8, "float", "uint8", 3, 4, 3))
    program = load_operator("matmul").build(m=4, n=4, k=4, dtype="e3m4")
    with pytest.raises(UsageError, match=r"has no e3m4 \(A\)"):
        get_backend("cpu").space(program, WIDE)


@pytest.mark.parametrize("dtype", WHOLE_BYTES)
def test_every_dtype_has_a_space(dtype: str) -> None:
    program = twice.build(m=8, n=40, dtype=dtype)
    for hardware in (WIDE, PLAIN):
        assert get_backend("cpu").space(program, hardware).seed_rows(np.random.default_rng(0)).any()


def test_a_matrix_that_is_read_once_is_walked_a_few_rows_at_a_time() -> None:
    space = get_backend("cpu").space(load_operator("matmul").build(m=1, n=4096, k=4096), WIDE)
    rows = space.seed_rows(np.random.default_rng(0))
    found = [space.schedule(row).as_dict() for row in rows[space.legal(rows)]]
    walks = [seed for seed in found if seed["tile.k.0"] == 8]
    assert walks
    for seed in walks:
        assert (seed["pack.s0.B"], seed["parallel"], seed["order.0"]) == ("no", "n", "n k")
        assert int(seed["tile.n.0"]) * 4 >= 4096  # whole pages of each row


def test_few_walked_rows_are_for_products_whose_sums_stay_in_the_cache() -> None:
    space = get_backend("cpu").space(load_operator("matmul").build(m=512, n=512, k=512), WIDE)
    rows = space.seed_rows(np.random.default_rng(0))
    found = [space.schedule(row).as_dict() for row in rows[space.legal(rows)]]
    assert all(int(seed["tile.k.0"]) > 16 for seed in found)


def test_threads_share_short_axes_where_there_are_no_others() -> None:
    """Sequences and heads are few, and of the long axes one is summed and one is a stage's own."""
    backend = get_backend("cpu")
    extents = {"b": 4, "heads": 8, "kv_heads": 2, "d": 32, "page": 8, "slots": 16}
    program = load_operator("paged_attention").build(pages=48, **extents)
    space = backend.space(program, backend.hardware(2))
    parallel = space.decision("parallel").domain
    assert {"b", "hk", "b hk"} <= set(parallel)
    assert space.decision("tile.b.1").domain == (1, 2, 4)
    little = backend.space(matmul_of(8), backend.hardware(2))
    assert little.decision("parallel").domain == ("",)


def matmul_of(extent: int) -> Program:
    return load_operator("matmul").build(m=extent, n=extent, k=extent)


def test_lanes_of_an_operand_that_has_all_axes() -> None:
    """No other operand has an axis for rows: there is one row, and lanes may be along any axis."""
    g = Graph("filters")
    lines, points, taps = g.axes(n=64, x=256, s=5)
    value = g.tensor("I", (64, 256), "f32", fill=0)[lines, points + taps - 2]
    total = reduce("sum", value * g.input("K", (taps,), "f32"), over=taps)
    g.output("O", total, "f32", (lines, points))
    backend = get_backend("cpu")
    space = backend.space(g.program(), backend.hardware(2)).pin({"lane.s0": "x"})
    rows = space.sample(np.random.default_rng(0), 8)
    assert {space.schedule(row).as_dict()["row.s0"] for row in rows} == {""}
