"""Seeds of kernels on tensor cores, and where programs are cut that none has whole."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, sigmoid, tanh, uniform
from ir.columns import Decision
from ir.errors import Refusal
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Value
from ir.targets.cuda.build.cut import WGMMA
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.seeds.fitted import with_room
from ir.targets.cuda.space.engines import residence_space
from ir.targets.cuda.space.probing import once
from ir.targets.cuda.space.residences import AND, HANDED, LAID
from ir.targets.cuda.space.tensor import TensorKernel
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


def state(program: Program) -> TensorKernel:
    """The kernel that computes an operand in registers."""
    kernels = kernels_of(program, HARDWARE, "wgmma_rs")
    return next(k for k in kernels if isinstance(k, TensorKernel) and k.roles.computed)


def test_rings_have_the_slots_that_there_is_room_for() -> None:
    """Scores of f32 are twice as long as what seeds are written for."""
    g = Graph("weighted")
    b, i, j, e = g.axes(b=64, i=256, j=256, e=64)
    scores, v = g.input("P", (b, i, j), "f32"), g.input("V", (b, j, e), "bf16")
    weights = cast(scores * exp(g.input("fade", (b, j), "f32", uniform(-1, 0))), "bf16")
    g.output("O", contract(weights, v, over=j), "bf16", (b, i, e))
    kernel = state(g.program())
    space = kernel.alone
    columns = space.columns(space.seed_matrix)
    assert space.legal(space.seed_matrix).sum() > len(space.seed_matrix) / 3
    stages = columns[kernel.name("stages")]
    large = np.asarray(columns[kernel.name("tile.j")]) >= 128
    assert {*stages[large].tolist()} & {2, 3}


def test_slots_are_given_up_one_by_one() -> None:
    slots = Decision("stages", (2, 3, 4, 5, 6), "pipeline", "k", "slots")
    size = Decision("size", (1, 2, 4), "tile", "k", "of a slot")
    seeds: list[dict[str, Value]] = [
        {"stages": 6, "size": 1}, {"stages": 6, "size": 2}, {"stages": 4, "size": 4},
    ]  # fmt: skip
    found = with_room(
        seeds, (slots, size), "stages", lambda c: np.asarray(c["stages"]) * c["size"] > 6
    )
    assert [seed["stages"] for seed in found] == [6, 3, 2]  # the last of what is left
    assert seeds[1]["stages"] == 6


def test_the_best_of_each_kernel_stand_together() -> None:
    program = load_operator("mamba2_chunked").build(
        b=2, t=512, heads=8, p=64, n=64, chunk=128, dtype="f16"
    )
    space = residence_space(program, HARDWARE, None, f"{HANDED}{AND}{LAID}")
    assert space.features is not None
    rows = space.seed_matrix[space.legal(space.seed_matrix)]
    names, table = space.features(space.columns(rows))
    told = table[:, names.index("total.estimate")].tolist()
    engines = [space.schedule(row).as_dict()["engine"] for row in rows]
    assert {*engines} == {"wgmma", "wgmma_rs"}
    for engine in dict.fromkeys(engines):
        own = [cost for cost, other in zip(told, engines, strict=True) if other == engine]
        assert own[0] <= min(own)  # what follows joins lists by their places


def test_what_was_tried_is_not_tried_again() -> None:
    tried = []

    class Kernel:
        def __init__(self, program: Program) -> None:
            self.program, self.hardware = program, HARDWARE

        @once
        def probe(self) -> None:
            tried.append(self.program.name)
            if len(self.program.axes) == 2:
                raise Refusal("axes", "two")

    g, h = Graph("one"), Graph("other")
    for graph in (g, h):
        i, j = graph.axes(i=4, j=4)
        graph.output("Y", graph.input("X", (i, j), "f32") + 1.0, "f32", (i, j))
    for graph in (g, h, g):
        with pytest.raises(Refusal):
            Kernel(graph.program()).probe()
    assert tried == ["one"]


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
