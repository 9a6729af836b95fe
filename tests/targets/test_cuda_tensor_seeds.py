"""Seeds of kernels on tensor cores, and where programs are cut that none has whole."""

from __future__ import annotations

from ir import Graph, cast, contract, reduce, sigmoid, tanh
from ir.registry import load_operator
from ir.targets.cuda.build.cut import WGMMA
from ir.targets.cuda.build.kernels import kernels_of
from tests.targets.cuda_cases import BACKEND, HARDWARE


def test_tiles_of_few_rows_or_columns_are_in_order() -> None:
    """Those that are one row or one column of all have one order, whatever the seed says."""
    for m, n, least in ((16, 4096, 200), (4096, 128, 125), (1, 14336, 200)):
        program = load_operator("matmul").build(m=m, n=n, k=4096, dtype="bf16")
        space = BACKEND.space(program, HARDWARE)
        assert space.legal(space.seed_matrix).sum() > least


def test_what_is_combined_along_columns_begins_with_all_of_them() -> None:
    g = Graph("scored")
    h, i, j, d = g.axes(h=16, i=16384, j=256, d=128)
    scores = contract(g.input("Q", (h, i, d), "bf16"), g.input("K", (j, d), "bf16"), over=d)
    g.output("M", reduce("max", scores, over=j), "f32", (h, i))
    space = BACKEND.space(g.program(), HARDWARE)
    matrix = space.seed_matrix[space.legal(space.seed_matrix)]
    found = [dict(space.schedule(row).values) for row in matrix]
    assert any(values.get("tile.j") == 256 and "cluster" in values for values in found)


def test_a_chain_that_no_kernel_has_is_cut_at_its_product() -> None:
    """A dilated, gated convolution in front of a product: two kernels on wgmma."""
    g = Graph("gated")
    t, c, f, o, r = g.axes(t=1024, c=128, f=128, o=128, r=2)
    x = g.tensor("X", (1024, 128), "bf16", fill=0)
    u, v = (
        contract(x[t + 64 * r - 64, c], g.input(name, (r, c, f), "bf16"), over=(r, c))
        for name in "UV"
    )
    y = cast(tanh(u) * sigmoid(v), "bf16")
    g.output("Y", contract(y, g.input("W", (f, o), "bf16"), over=f), "bf16", (t, o))
    kernels = kernels_of(g.program(), HARDWARE, WGMMA)
    assert [kernel.kind for kernel in kernels] == ["tensor", "tensor"]
