"""Products of two products, reduced across their columns: each factor is computed once, and what is
reduced of the last product is so in its tiles."""

from __future__ import annotations

from ir import Graph, cast, contract, maximum, reduce
from ir.program import Program
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.residences import residences
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import HARDWARE
from tests.targets.formed import form_problems


def towers(n: int = 320, m: int = 512, d: int = 32, r: int = 32) -> Program:
    g = Graph("towers")
    nn, mm, dd, ss, rr = g.axes(n=n, m=m, d=d, s=d, r=r)
    a = contract(g.input("A", (nn, dd), "bf16"), g.input("U", (rr, dd), "bf16"), over=dd)
    b = contract(g.input("B", (mm, ss), "bf16"), g.input("V", (rr, ss), "bf16"), over=ss)
    s = contract(cast(maximum(a, 0.0), "bf16"), cast(b * 0.1, "bf16"), over=rr)
    g.output("best", reduce("max", s, over=mm), "f32", (nn,))
    g.output("mean", reduce("sum", s, over=mm) * (1 / m), "f32", (nn,))
    return g.program()


def test_factors_are_stored_and_the_product_is_reduced_in_its_tiles() -> None:
    program = towers()
    assert "parts-2" in residences(program, 132)
    kernels = kernels_of(program, HARDWARE, "wgmma", "parts-2")
    tensor = [kernel.program for kernel in kernels if kernel.kind == "tensor"]
    assert len(tensor) == 3
    shapes = [{spec.shape for spec in one.outputs} for one in tensor]
    assert shapes == [{(320, 32)}, {(512, 32)}, {(2, 320)}]


def test_a_factor_that_few_blocks_would_repeat_is_computed_where_it_is_read() -> None:
    """Rows that a block has beside each other share what is made for their columns."""
    kernels = kernels_of(towers(n=128), HARDWARE, "wgmma", "parts-2")
    outputs = {spec.shape for kernel in kernels for spec in kernel.program.outputs}
    assert (512, 32) not in outputs


@needs_compiler
def test_its_kernels_are_right() -> None:
    assert not form_problems(towers(), towers(), "parts-2")
