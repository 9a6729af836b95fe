"""`tilewright show --kernel`: loops of CUDA kernels, where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from explorer import cli
from explorer.workload import Workload
from ir.kernel.body import Body
from ir.targets.cuda.bodies.tensor_order import NAME

CARD = ("--target", "cuda", "--hardware", "h200")
ATTENTION = ("attention", "b=1", "heads=4", "sq=1024", "d=128", "dtype=bf16")
PACKED = """
from ir import Graph, cast, contract, operator


@operator
def widened(g: Graph, m: int, n: int, k: int) -> None:
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (rows, depth), "bf16"), g.input("W", (columns, depth), "i8")
    g.output("C", contract(a, cast(w, "bf16"), over=depth), "bf16")
"""


def _schedule(operator: str, words: tuple[str, ...], **pins: object) -> str:
    """The first seed of a space on that card."""
    arguments = dict(word.split("=") for word in words)
    space = Workload.of(operator, arguments, "cuda").on("h200").space(pins)
    return space.schedule(space.seed_rows(np.random.default_rng(0))[0]).to_json()


def _shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.invoke(["show", *words, *CARD, "--kernel"]) == cli.EXIT_DONE
    return capsys.readouterr().out


@pytest.mark.parametrize("order", ["straight", "outer:1"])
def test_chained_products(order: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = _schedule(ATTENTION[0], ATTENTION[1:], **{NAME: order})
    found = _shown(capsys, *ATTENTION, "--schedule", chosen, "--format", "json")
    (kernel,) = json.loads(found)["kernels"]
    body = Body.parse(kernel["body"])
    assert [one.name for one in body.operations] == ["inner", "between", "fold", "outer"]
    assert kernel["order"] == order
    steps = {
        "straight": ["wait for inner of j", "inner of j",
                     "wait until 0 products run; free late of j-1, inner of j", "between of j",
                     "fold of j", "wait for late of j", "outer of j",
                     "wait until 0 products run; free late of j-1 behind the last block"],
        "outer:1": ["wait for inner of j", "inner of j", "wait for late of j-1", "outer of j-1",
                    "wait until 1 product runs; free inner of j", "between of j",
                    "wait until 0 products run; free late of j-1", "fold of j"],
    }  # fmt: skip
    assert kernel["steps"] == steps[order]
    assert kernel["text"].count("TW_KERNEL") == 1


def test_pieces_of_computed_operands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "packed.py"
    file.write_text(PACKED)
    operator, words = f"{file}:widened", ("m=256", "n=256", "k=512")
    pins = {"engine": "wgmma_rs", f"wgmma_rs.{NAME}": "multiply:1"}
    (tmp_path / "s.json").write_text(_schedule(operator, words, **pins))
    out = _shown(capsys, operator, *words, "--schedule", f"@{tmp_path / 's.json'}")
    head, _, text = out.partition("\ntext\n")
    assert "order multiply:1: multiply of a block beside form of the next" in head
    assert "wait until 1 product runs; free outer of j-1\n  form of piece 1 of" in head
    assert head.endswith("wait until 0 products run; free outer of j behind the last block")
    assert "  places cast_2_words 2" in head
    assert "tw_wgmma_wait<1>();" in text


@pytest.mark.parametrize(("wait", "steps"), [
    (0, ["wait until 0 products run; free outer of j"]),
    (1, ["wait until 1 product runs; free outer of j-1",
         "wait until 0 products run; free outer of j behind the last block"]),
])  # fmt: skip
def test_plain_products(wait: int, steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("m=512", "n=512", "k=512", "dtype=bf16")
    pins = {"engine": "wgmma", "source": "shared", "wait": wait}
    chosen = _schedule("matmul", words, **pins)
    found = _shown(capsys, "matmul", *words, "--schedule", chosen, "--format", "json")
    (kernel,) = json.loads(found)["kernels"]
    assert kernel["body"].endswith("contract_2 takes outer")
    assert kernel["steps"] == ["wait for outer of j", "multiply of piece 0 of 1", *steps]
    assert kernel["text"].count(f"tw_wgmma_wait<{wait}>();") == 1


def test_operands_computed_into_shared_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "packed.py"
    file.write_text(PACKED)
    operator, words = f"{file}:widened", ("m=256", "n=256", "k=512")
    chosen = _schedule(operator, words, **{"engine": "mma", "mma.loads": "staged", "mma.stages": 4})
    found = _shown(capsys, operator, *words, "--schedule", chosen, "--format", "json")
    (kernel,) = json.loads(found)["kernels"]
    assert kernel["order"] == "load:2,form:2,multiply:3"
    assert kernel["steps"] == [
        "wait until 1 copy runs; barrier", "load of j-2", "copy of j", "multiply of j-3",
        "form of j-2",
    ]  # fmt: skip
    _, _, loop = kernel["text"].partition("#pragma unroll 1")
    assert "tw_copy_async_wait<1>();\n    tw_sync();" in loop


def test_kernels_without_a_body(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = _schedule("softmax", ("m=64", "n=512"))
    words = ["show", "softmax", "m=64", "n=512", *CARD, "--kernel", "--schedule", chosen]
    assert cli.invoke(words) == cli.EXIT_USAGE
    said = capsys.readouterr().err
    assert "softmax: no kernel of this schedule has a loop body yet: softmax" in said
    assert said.count("\n") == 1
