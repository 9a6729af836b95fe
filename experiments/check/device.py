"""On a GPU: what the check takes, how much of its room right kernels use, and whom it catches.

    python experiments/check/device.py --out DIR [--seconds S]

Draws operands on the host and on the device and compares the bits; times the first full check of
large workloads; runs seeds and drawn schedules of many operators, and tells the largest share of an
element's interval that any of them used; makes mutants of what they
stored. Those of kernels and launches are in mutants.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from explorer.afforded import DEVICE
from explorer.check import Bounds, host, poison, widen
from explorer.expectation import Expected, Recipe
from explorer.runtime.cuda import CudaRuntime, cupy
from ir import values as kinds
from ir.draws import Draws
from ir.errors import TilewrightError
from ir.ops.base import TensorSpec
from ir.program import Program
from ir.registry import load_operator
from ir.target import get_backend
from tests.mutants.results import wrong_results
from tests.mutants.subject import Subject

SEED = 5
DRAWN: tuple[tuple[kinds.Values, str], ...] = (
    *((kinds.normal(), dtype) for dtype in ("f64", "f32", "tf32", "f16", "bf16", "e4m3")),
    *((kinds.normal(2.5, 1.0), dtype) for dtype in ("f32", "bf16", "e4m3")),
    (kinds.uniform(-1, 3), "f32"), (kinds.uniform(-5, 9), "i8"), (kinds.positive(2), "bf16"),
    (kinds.probabilities(), "f32"), (kinds.ascending(-1, 1), "f32"),
    (kinds.prefix_sums(0.1, 0.3), "f32"), (kinds.permutation(), "i32"),
    (kinds.offsets(999, 2), "i32"), (kinds.lengths(77, 3, 1), "i32"),
    (kinds.indices(500, 1), "i64"), (kinds.decay(3), "f16"), (kinds.one_hot(), "bf16"),
)  # fmt: skip
LARGE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", "tb": True}),
    ("attention", {"b": 16, "heads": 8, "sq": 64, "sk": 8192, "d": 128, "dtype": "bf16"}),
    ("softmax", {"m": 16384, "n": 16384, "dtype": "bf16"}),
    ("matmul_bias_act", {"m": 4096, "n": 14336, "k": 4096, "dtype": "bf16"}),
)
_FLOATS: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (name, {**arguments, "dtype": dtype})
    for dtype in ("bf16", "f16", "f32", "tf32", "e4m3")
    for name, arguments in (
        ("matmul", {"m": 512, "n": 768, "k": 4096, "tb": True}),
        ("matmul", {"m": 128, "n": 256, "k": 65536, "tb": True}),
        ("matmul_bias_act", {"m": 300, "n": 512, "k": 1024}),
        ("gated_mlp", {"m": 256, "n": 512, "k": 512}),
        ("softmax", {"m": 200, "n": 3000}),
        ("layernorm", {"m": 200, "n": 4096}),
        ("rmsnorm", {"m": 200, "n": 4096}),
        ("attention", {"b": 1, "heads": 4, "sq": 512, "sk": 2048, "d": 64}),
        ("attention", {"b": 1, "heads": 4, "sq": 512, "d": 64, "causal": True}),
        ("row_sum", {"m": 200, "n": 30000}),
        ("column_sum", {"m": 30000, "n": 200}),
        ("row_max", {"m": 200, "n": 3000}),
        ("conv2d", {"n": 2, "h": 16, "w": 16, "c": 64, "f": 64, "padding": 1}),
        ("gaussian", {"m": 300, "n": 200, "d": 8}),
    )
)  # fmt: skip
RIGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    *_FLOATS,
    ("scaled_matmul", {"m": 256, "n": 256, "k": 4096}),
    ("scaled_matmul", {"m": 256, "n": 256, "k": 16384}),
    ("matmul", {"m": 512, "n": 512, "k": 512, "dtype": "i8", "tb": True}),
)  # fmt: skip


def same_bits() -> dict[str, Any]:
    """How many of the kinds of values come out alike on the host and the device."""
    different = []
    for values, dtype in DRAWN:
        spec = TensorSpec("X", (333, 777), dtype, "input", values)
        here = values.draw(spec, Draws.named(3, "X"))
        there = host(values.draw(spec, Draws.named(3, "X", xp=cupy())))
        if here.tobytes() != there.tobytes():
            different.append(f"{values} {dtype}: {int((here != there).sum())} of {here.size}")
    return {"kinds": len(DRAWN), "different": different}


def first_check(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Seconds until all elements of an output of large operands have their interval, and of a
    comparison."""
    program = load_operator(name).build(**arguments)
    recipe = Recipe(program, SEED, accumulations())
    times = []
    for number in range(2):
        cupy().cuda.Device().synchronize()
        start = time.perf_counter()
        expected = recipe.expected(number, DEVICE, cupy())
        cupy().cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    ((key, bounds),) = expected.bounds.items()
    output = CudaRuntime().empty(program.outputs[0].shape, program.outputs[0].dtype)
    output[...] = 0
    compared = []
    for _ in range(3):
        start = time.perf_counter()
        bool((bounds.low <= bounds.high).all())
        for part in bounds._parts(output.reshape(-1)):
            widen(part[0], bounds.dtype)
        cupy().cuda.Device().synchronize()
        compared.append(time.perf_counter() - start)
    whole = bounds.picks is None
    known = f"{name} {arguments}"
    del expected, bounds, output
    cupy().get_default_memory_pool().free_all_blocks()
    return {"case": known, "output": key, "whole": whole, "first_s": round(times[0], 3),
            "second_s": round(times[1], 3), "compare_s": round(min(compared), 4)}  # fmt: skip


def accumulations() -> Any:
    backend = get_backend("cuda")
    return backend.accumulations(backend.hardware())  # type: ignore[attr-defined]


def share_of(bounds: Bounds, output: Any) -> float:
    """The largest part of the way from the middle of an interval to its end."""
    value = widen(output, bounds.dtype).astype(np.float64)
    low, high = bounds.low.astype(np.float64), bounds.high.astype(np.float64)
    middle, half = (low + high) / 2, (high - low) / 2
    share = np.where(half > 0, np.abs(value - middle) / np.where(half > 0, half, 1), 0.0)
    return float(np.where(share == share, share, 0.0).max())


def kernels_of(name: str, arguments: dict[str, Any], count: int, folder: Path) -> dict[str, Any]:
    """Right and wrong kernels among seeds and drawn ones, and which mutants of one live."""
    backend, runtime = get_backend("cuda"), CudaRuntime()
    hardware = backend.hardware()
    program = load_operator(name).build(**arguments)
    expected = Recipe(program, SEED, accumulations()).expected(0, DEVICE, cupy())
    space, rng = backend.space(program, hardware), np.random.default_rng(1)
    rows = [*space.seed_rows(rng)[:count], *space.sample(rng, count)]
    row: dict[str, Any] = {"case": f"{name} {arguments}", "kernels": 0, "wrong": [], "share": 0.0}
    for schedule in map(space.schedule, rows):
        kernel = backend.lower(program, schedule, hardware)
        outputs = {s.name: runtime.empty(s.shape, s.dtype) for s in program.outputs}
        for spec in program.outputs:
            poison(outputs[spec.name], spec.dtype)
        binary = runtime.compile(kernel, folder)
        have = {**expected.inputs, **outputs}
        runtime.load(binary).bind([have[a.name] for a in binary.operands])()
        row["kernels"] += 1
        for key, bounds in expected.bounds.items():
            verdict = bounds.judge(outputs[key])
            if not verdict.right:
                row["wrong"].append(f"{verdict.detail} {schedule.to_json()}")
            elif bounds.dtype not in ("i32", "i8", "i64", "bool", "u8"):
                row["share"] = max(row["share"], round(share_of(bounds, outputs[key]), 3))
    row["mutants"], row["alive"] = mutants(program, expected)
    return row


def mutants(program: Program, expected: Expected) -> tuple[int, list[str]]:
    """How many mutants there are of what a right kernel stores, and those that pass as right."""
    if program.flops > 2e9:
        return 0, []
    inputs = {name: host(array) for name, array in expected.inputs.items()}
    subject = Subject.made(program, inputs)
    count, alive = 0, []
    for what, wrong in wrong_results(subject):
        if not subject.tells(wrong):
            continue
        count += 1
        placed = {name: cupy().asarray(array) for name, array in wrong.items()}
        if all(expected.bounds[name].judge(array).right for name, array in placed.items()):
            alive.append(what)
    return count, alive


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", default=".")
    words.add_argument("--seconds", type=float, default=300)
    words.add_argument("--count", type=int, default=2)
    given = words.parse_args()
    end = time.monotonic() + given.seconds
    CudaRuntime().prepare()
    found: dict[str, Any] = {"draws": same_bits(), "large": [], "kernels": []}
    print(json.dumps(found["draws"]), flush=True)
    for case in LARGE:
        found["large"].append(attempt(first_check, *case))
        print(json.dumps(found["large"][-1]), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in RIGHT:
            if time.monotonic() > end:
                break
            found["kernels"].append(attempt(kernels_of, *case, given.count, Path(folder)))
            print(json.dumps(found["kernels"][-1])[:300], flush=True)
    Path(given.out, "results.json").write_text(json.dumps(_header() | found, indent=1) + "\n")


def _header() -> dict[str, Any]:
    device = cupy().cuda.runtime.getDeviceProperties(0)["name"].decode()
    return {
        "hardware": device, "cupy": cupy().__version__, "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d"), "command": "python experiments/check/device.py",
    }  # fmt: skip


def attempt(function: Any, *arguments: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = function(*arguments)
        return found
    except TilewrightError as error:
        return {"case": str(arguments[:2]), "refused": str(error)[:300]}
    except Exception:  # noqa: BLE001 (a case that fails is told with the others)
        return {"case": str(arguments[:2]), "failed": traceback.format_exc()[-1500:]}


if __name__ == "__main__":
    main()
