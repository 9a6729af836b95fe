"""The text of CUDA kernels: golden ones, names, the launch plan, the same bytes every time.

`python -m tests.targets.test_cuda_text` writes the golden files anew when texts shall change.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ir.dtypes import dtype_of
from ir.kernel import Kernel
from ir.schedule import Schedule
from ir.targets.cuda.text.naming import text_name
from tests.few import few
from tests.targets.cuda_cases import BACKEND, HARDWARE, NAMES, SMALL, built, drawn

GOLDEN = Path(__file__).parent / "golden"
MARK = "//@ kernel\n"
TEXTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "softmax.cu": (
        "softmax",
        {"m": 64, "n": 512, "dtype": "bf16"},
        {"early": True, "lanes": "n", "own.m": 1, "own.n": 8, "tile.m": 2, "tile.n": 512,
         "vector": 8},
    ),
    "matmul.cu": (
        "matmul",
        {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "tb": True},
        {"cluster": "2x1", "consumers": 2, "early": True, "epilogue": "tma", "epilogue_slots": 1,
         "partition": "rows", "processors": 132, "promotion": 128,
         "raster": "rows", "registers": "40/232", "stages": 3, "stream": "columns", "swap": False,
         "tile.k": 64, "tile.m": 128, "tile.n": 64, "wait": 1},
    ),
    "column_sum.cu": (
        "column_sum",
        {"m": 1000, "n": 60},
        {"early": False, "lanes": "n", "own.m": 2, "own.n": 4, "tile.m": 32, "tile.n": 64,
         "vector": 4},
    ),
}  # fmt: skip


def body(name: str) -> str:
    """The kernels of a golden text, without the prelude."""
    operator, arguments, values = TEXTS[name]
    program = built(operator, arguments)
    schedule = Schedule.of("cuda", values)
    assert BACKEND.space(program, HARDWARE).refusal(schedule) is None
    return BACKEND.lower(program, schedule, HARDWARE).text("cuda").rpartition(MARK)[2]


@pytest.mark.parametrize("name", TEXTS)
def test_golden_text(name: str) -> None:
    assert body(name) == (GOLDEN / name).read_text()


@cache
def kernels(number: int) -> list[Kernel]:
    """Kernels of drawn schedules of one of the small programs."""
    program = built(*SMALL[number])
    return [BACKEND.lower(program, s, HARDWARE) for s in drawn(program, 7, 2, 3)]


def parameters_of(text: str, name: str) -> list[tuple[str, str]]:
    """(kind, stem) of each parameter in the signature of kernel `name`."""
    heads = re.findall(rf"^TW_KERNEL [^\n]*\b{name}\(([^\n]*)\) {{$", text, re.M)
    assert len(heads) == 1, name
    found = []
    for word in heads[0].split(", "):
        stem = word.split()[-1]
        is_map = "tw_tensor_map" in word
        stem = re.sub(r"_map(_\d+)?$", "", stem) if is_map else stem
        found.append(("map" if is_map else "pointer", stem))
    return found


@pytest.mark.parametrize("number", few(range(len(SMALL)), range(0, len(SMALL) - 1, 2), NAMES))
@pytest.mark.alike(2)
def test_a_text_stands_alone_and_is_named_after_its_program(number: int) -> None:
    program = built(*SMALL[number])
    for kernel in kernels(number):
        text = kernel.text("cuda")
        assert "#include" not in text
        assert f"// launch: {kernel.text('launch')}\n" in text
        launches = json.loads(kernel.text("launch"))["kernels"]
        names = [launch["name"] for launch in launches]
        assert kernel.entry == names[0]
        assert len(set(names)) == len(names)
        assert all(name.startswith(program.name) for name in names)
        prelude, _, own = text.rpartition(MARK)
        called = set(re.findall(r"\b(tw_[a-z0-9_]+)[(<]", own))
        assert called <= set(re.findall(r"\b(tw_[a-z0-9_]+)\(", prelude))
        assert all(line == line.rstrip() for line in own.split("\n"))


@pytest.mark.parametrize("number", range(len(SMALL)), ids=NAMES)
@pytest.mark.alike(2)
def test_plan_and_signature_say_the_same(number: int) -> None:
    for kernel in kernels(number):
        text, plan = kernel.text("cuda"), json.loads(kernel.text("launch"))
        assert set(plan) == {"arch", "options", "workspace_bytes", "clean", "kernels"}
        assert plan["arch"] == "sm_90a"
        for launch in plan["kernels"]:
            assert set(launch) == {
                "name", "grid", "block", "cluster", "shared", "parameters", "zero", "early"
            }  # fmt: skip
            given = parameters_of(text, launch["name"])
            assert [kind for kind, _ in given] == [p["kind"] for p in launch["parameters"]]
            for (_, stem), parameter in zip(given, launch["parameters"], strict=True):
                argument = parameter["argument"]
                assert argument == "workspace" or stem in (argument, text_name(argument))
            head = next(line for line in text.split("\n") if f" {launch['name']}(" in line)
            bounds = re.search(r"__launch_bounds__\((\d+)", head)
            assert bounds is not None
            assert int(bounds[1]) == launch["block"]
            cluster = re.search(r"__cluster_dims__\((\d+)", head)
            assert launch["cluster"] == [int(cluster[1]) if cluster else 1, 1, 1]
            assert launch["grid"][0] % launch["cluster"][0] == 0


@pytest.mark.parametrize("number", range(len(SMALL)), ids=NAMES)
@pytest.mark.alike(2)
def test_plans_stay_inside_their_arguments(number: int) -> None:
    """Pointers, maps and what is cleared; and what CUDA asks of a tensor map."""
    for kernel in kernels(number):
        plan = json.loads(kernel.text("launch"))
        sizes = {argument.name: argument.bytes for argument in kernel.arguments}
        assert plan["workspace_bytes"] == sizes.get("workspace", 0)
        for launch in plan["kernels"]:
            for start, count in launch["zero"]:
                assert 0 <= start < start + count <= plan["workspace_bytes"]
            for parameter in launch["parameters"]:
                assert 0 <= parameter["offset"] < sizes[parameter["argument"]]
                assert parameter["offset"] % 16 == 0
                if parameter["kind"] == "map":
                    check_map(parameter, sizes[parameter["argument"]])


def check_map(found: dict[str, Any], size: int) -> None:
    """Rank, strides and boxes that the driver takes, and no byte outside of the argument."""
    dims, strides, box = found["dims"], found["strides"], found["box"]
    element = dtype_of(found["dtype"]).bytes
    assert 1 <= len(dims) == len(box) == len(strides) + 1 <= 5
    assert all(1 <= extent <= 256 for extent in box)
    assert all(stride % 16 == 0 and stride < 1 << 40 for stride in strides)
    assert found["swizzle"] in (0, 32, 64, 128)
    assert box[0] * element <= (found["swizzle"] or 256 * element)
    assert box[0] * element % 16 == 0
    last = sum((extent - 1) * stride for extent, stride in zip(dims[1:], strides, strict=True))
    assert found["offset"] + last + dims[0] * element <= size


def digest() -> str:
    """Of all texts of some schedules."""
    found = hashlib.sha256()
    for number in (0, 6, 12, 18, 21):
        for kernel in kernels(number):
            found.update(kernel.key.encode())
            found.update(kernel.text("launch").encode())
    return found.hexdigest()


def test_every_process_writes_the_same_bytes() -> None:
    """Whatever the order in which its sets are walked."""
    code = "from tests.targets.test_cuda_text import digest; print(digest())"
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        root = Path(__file__).parents[2]
        found.add(subprocess.check_output(command, env=environment, cwd=root, text=True).strip())
    assert len(found) == 1


if __name__ == "__main__":
    for file in TEXTS:
        (GOLDEN / file).write_text(body(file))
