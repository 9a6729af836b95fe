"""`tilewright show --kernel`: loops of CUDA kernels, where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from explorer import cli
from explorer.workload import Workload
from ir.kernel.tile_kernel import BLOCK, Do, Loop, Sync, TileKernel, walk
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
    assert kernel["order"] == order
    names = [one["pass"] for one in kernel["passes"]]
    assert names == ["build", "roles", "pipeline", "synchronise", "place"]
    kernels = {one["pass"]: TileKernel.parse(one["text"]) for one in kernel["passes"]}
    assert all(str(kernels[one["pass"]]) == one["text"] for one in kernel["passes"])
    built = kernels["build"]
    assert not any(isinstance(one, Sync) for one in built.statements())
    (loop,) = (one for one in built.statements() if isinstance(one, Loop) and one.over == BLOCK)
    done = [one.operation for one in loop.body if isinstance(one, Do)]
    assert done == ["fetch.inner", "fetch.late", "inner", "between", "fold", "outer"]
    steps = {
        "straight": ["sync full inner", "sync fence", "do inner", "sync commit", "sync await",
                     "sync done outer", "if block >= 1", "sync done inner", "sync release inner",
                     "sync advance inner", "do between", "do fold", "sync full late", "sync fence",
                     "do outer", "sync commit"],
        "outer:1": ["sync full inner", "sync fence", "do inner later always", "sync commit",
                    "sync full late", "sync fence", "do outer of block-1 later block >= 2",
                    "sync commit", "sync await 1", "sync done inner", "sync release inner",
                    "sync advance inner", "do between later always", "sync await",
                    "sync done outer", "sync release late", "sync advance late",
                    "do fold later always"],
    }  # fmt: skip
    (loop,) = (
        one for one in kernels["place"].role("consumers").body[-2:][0].body  # type: ignore[union-attr]
        for one in walk((one,)) if isinstance(one, Loop) and one.over == BLOCK
    )  # fmt: skip
    assert [str(one) for one in loop.body] == steps[order]
    assert kernel["text"].count("TW_KERNEL") == 1


def test_pieces_of_computed_operands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "packed.py"
    file.write_text(PACKED)
    operator, words = f"{file}:widened", ("m=256", "n=256", "k=512")
    pins = {"engine": "wgmma_rs", f"wgmma_rs.{NAME}": "multiply:1"}
    (tmp_path / "s.json").write_text(_schedule(operator, words, **pins))
    out = _shown(capsys, operator, *words, "--schedule", f"@{tmp_path / 's.json'}")
    head, _, text = out.partition("\n# text\n")
    assert "order multiply:1: multiply of a block beside form of the next" in head
    last = [line.strip() for line in head.partition("# behind place")[2].splitlines()]
    place = last.index("if block >= 1")
    assert last[place - 1 : place + 3] == [
        "sync await 1", "if block >= 1", "sync release outer 1", "do form piece 1",
    ]  # fmt: skip
    behind = ["sync advance outer", "sync await", "if blocks >= 1"]
    assert last[last.index("do keep") + 1 :][:3] == behind
    assert "tw_wgmma_wait<1>();" in text


@pytest.mark.parametrize(("wait", "steps"), [
    (0, ["sync await", "sync release outer", "sync advance outer"]),
    (1, ["sync await 1", "if block >= 1", "sync advance outer"]),
])  # fmt: skip
def test_plain_products(wait: int, steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("m=512", "n=512", "k=512", "dtype=bf16")
    pins = {"engine": "wgmma", "source": "shared", "wait": wait}
    chosen = _schedule("matmul", words, **pins)
    found = _shown(capsys, "matmul", *words, "--schedule", chosen, "--format", "json")
    (kernel,) = json.loads(found)["kernels"]
    last = TileKernel.parse(kernel["passes"][-1]["text"])
    loops = [one for one in last.statements() if isinstance(one, Loop) and one.over == BLOCK]
    assert [str(one) for one in loops[0].body] == [
        "sync free outer", "sync expect outer", "do fetch.outer", "sync advance outer",
    ]  # fmt: skip
    begun = ["sync full outer", "sync fence", "do multiply piece 0", "sync commit"]
    assert [str(one) for one in loops[1].body] == [*begun, *steps]
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
    assert [one["pass"] for one in kernel["passes"]] == ["build", "ahead", "meet"]
    kernels = {one["pass"]: TileKernel.parse(one["text"]) for one in kernel["passes"]}
    assert all(str(kernels[one["pass"]]) == one["text"] for one in kernel["passes"])
    built = kernels["build"]
    assert not any(isinstance(one, Sync) for one in built.statements())
    (loop,) = (one for one in built.statements() if isinstance(one, Loop))
    assert [str(one) for one in loop.body] == ["do copy", "do load", "do form", "do multiply"]
    lines = str(kernels["meet"]).splitlines()
    first = lines.index("for block from 0 to 3")
    assert [line.strip() for line in lines[first + 1 : first + 7]] == [
        "do copy", "sync commit-copies", "sync copied 2", "sync barrier", "scope ahead 2",
        "do load of 0 later never",
    ]  # fmt: skip
    (loop,) = (one for one in kernels["meet"].statements() if isinstance(one, Loop) and one.order)
    assert [line.strip() for line in map(str, walk(loop.body))] == [
        "sync copied 1", "sync barrier", "do load of block+1 later always", "if left >= 4",
        "do copy of block+3 later always", "sync commit-copies", "do multiply",
        "do form of block+1 later always",
    ]  # fmt: skip
    _, _, text = kernel["text"].partition("#pragma unroll 1")
    assert "tw_copy_async_wait<1>();\n    tw_sync();" in text


def test_loads_ahead_of_a_softmax(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("m=64", "n=65536", "dtype=bf16")
    pins = {"tile.n": 4096, "ahead": 2, "waits": "shared", "early": True, "prefetch": 0}
    chosen = _schedule("softmax", words, **pins)
    found = _shown(capsys, "softmax", *words, "--schedule", chosen, "--format", "json")
    (kernel,) = json.loads(found)["kernels"]
    assert kernel["order"] == "ahead:2"
    names = [one["pass"] for one in kernel["passes"]]
    assert names == ["build", "loadahead", "waits"]
    kernels = {one["pass"]: TileKernel.parse(one["text"]) for one in kernel["passes"]}
    assert all(str(kernels[one["pass"]]) == one["text"] for one in kernel["passes"])
    for name in ("build", "loadahead"):
        assert not any(isinstance(one, Sync) for one in kernels[name].statements())
    built, last = (
        [one for one in kernels[name].statements() if isinstance(one, Loop) and one.over == BLOCK]
        for name in ("build", "waits")
    )
    done = [[str(one) for one in loop.body] for loop in built]
    assert done == [["do load.0", *done[0][1:]], ["do load.1", *done[1][1:]]]
    assert [word.partition(".")[0] for word in done[0][1:]] == ["do reduce"] * 2
    assert [word.partition(".")[0] for word in done[1][1:]] == ["do store"]
    filled, first, _, second = last
    assert str(filled) == "for block from 0 to 2"
    assert [str(one) for one in filled.body] == ["if left >= 1", "sync commit-copies"]
    begun = ["sync copied 1", "do take.{}", "if left >= 3", "sync commit-copies",
             "sync advance ahead.{}"]  # fmt: skip
    for number, loop in enumerate((first, second)):
        taken = [word.format(number) for word in begun]
        assert [str(one) for one in loop.body] == [*taken, *done[number][1:]]
    assert kernel["text"].count("tw_copy_async_wait<1>();") == 2


def test_tiles_that_blocks_walk(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("m=16384", "n=1024", "dtype=bf16")
    pins = {"tile.n": 1024, "walkers": 2, "ahead": 1, "waits": "registers"}
    chosen = _schedule("softmax", words, **pins)
    out = _shown(capsys, "softmax", *words, "--schedule", chosen)
    head, _, text = out.partition("\n# text\n")
    assert "order ahead:1: loads of the next step are on their way to registers" in head
    last = [line.strip() for line in head.partition("# behind waits")[2].splitlines()]
    place = last.index("for tile")
    assert last[place - 4 : place + 4] == [
        "registers X_ahead", "for tile from 0 to 1", "if left >= 1", "do ask of tile",
        "for tile", "do take", "if left >= 2", "do ask of tile+1",
    ]  # fmt: skip
    assert text.count("X_ahead[") > 2
