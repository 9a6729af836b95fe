"""What a call of an exported module costs on the host, beside torch's own operator and CuPy's.

    python experiments/ranges/launch.py --target cpu [--out FOLDER]
    python experiments/ranges/launch.py --target cuda [--out FOLDER]

A product so small that the call is all there is, exported alone and as one of several extents, as
a module and as an operator of torch. Medians of turns, in each of which all contestants are called
in loops; on a card they wait for it between loops, so that no queue is full.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import explorer  # noqa: E402
from explorer.recall import open_store  # noqa: E402

HEIGHTS = [16, 32, 48, 64]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "cpu": {"n": 16, "k": 16, "threads": 1},
    "cuda": {"n": 64, "k": 64, "dtype": "bf16", "tb": True, "target": "cuda"},
}
TRIALS = {"cpu": 1, "cuda": 4}  # any kernel will do: the call is what is measured
CALLS, ROUNDS = 200, 41
Calls = dict[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=ARGUMENTS, default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        calls, wait = contestants(options.target, Path(folder), torch)
        times = measured(calls, wait, options.rounds)
    rows = rows_of(options.target, times)
    file = options.out / "launch.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known[options.target] = {"header": header(torch, options.target), "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known, indent=1) + "\n")
    (options.out / "launch.md").write_text(page(known))
    print(page(known))


def contestants(target: str, folder: Path, torch: Any) -> tuple[Calls, Callable[[], object]]:
    """Calls by name, and what waits for all of them to be done."""
    given, store = ARGUMENTS[target], folder / "records.db"
    with open_store(store):
        pass
    for m in HEIGHTS:
        explorer.tune("matmul", m=m, store=store, trials=TRIALS[target], baseline=False, **given)
    first = given | {"m": HEIGHTS[0], "store": store}
    all_of_them = given | {"m": HEIGHTS, "store": store}
    explorer.export("matmul", folder, name="tw_alone", **first)
    explorer.export("matmul", folder, name="tw_several", **all_of_them)
    explorer.export_torch("matmul", folder / "tw_torch_alone", **first)
    explorer.export_torch("matmul", folder / "tw_torch_several", **all_of_them)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    names = ("tw_alone", "tw_several", "tw_torch_alone", "tw_torch_several")
    alone, several, torch_alone, torch_several = map(importlib.import_module, names)
    if target == "cuda":
        return _on_cuda(torch, alone, several, torch_alone, torch_several)
    calls = _on_cpu(torch, alone, several, torch_alone, torch_several)
    return calls | _built(torch, folder, store), lambda: None


def _built(torch: Any, folder: Path, store: Path) -> Calls:
    """The operators in C++, of other kernels: torch has each operator once."""
    several = ARGUMENTS["cpu"] | {"m": HEIGHTS[:2], "store": store}
    explorer.export_torch("matmul", folder / "tw_torch_built", build=True, **several)
    importlib.invalidate_caches()
    package = importlib.import_module("tw_torch_built")
    a, b = torch.randn(HEIGHTS[0], 16), torch.randn(16, 16)
    return {
        "operator in C++": lambda: package.matmul(a, b),
        "operator in C++ through torch": lambda: package._plain(a, b),
    }


def _on_cpu(torch: Any, alone: Any, several: Any, torch_alone: Any, torch_several: Any) -> Calls:
    a, b = torch.randn(HEIGHTS[0], 16), torch.randn(16, 16)
    x, y = a.numpy(), b.numpy()
    assert torch.allclose(torch_several.matmul(a, b), a @ b, atol=1e-3)
    return {
        "torch.mm": lambda: torch.mm(a, b),
        "numpy, x @ y": lambda: x @ y,
        "module on arrays": lambda: alone.tw_alone(x, y),
        "module of several on arrays": lambda: several.tw_several(x, y),
        "module on tensors": lambda: alone.tw_alone(a, b),
        "operator": lambda: torch_alone.matmul(a, b),
        "operator of several": lambda: torch_several.matmul(a, b),
        "operator through torch": lambda: torch_alone._plain(a, b),
    }


def _on_cuda(
    torch: Any, alone: Any, several: Any, torch_alone: Any, torch_several: Any
) -> tuple[Calls, Callable[[], object]]:
    cupy = importlib.import_module("cupy")
    a = torch.randn(HEIGHTS[0], 64, device="cuda").bfloat16()
    b = torch.randn(64, 64, device="cuda").bfloat16()
    out, other = torch.empty(HEIGHTS[0], 64, device="cuda").bfloat16(), b.t()
    x, y = (cupy.from_dlpack(t.view(torch.int16)).view(cupy.uint16) for t in (a, b))
    half = cupy.zeros((HEIGHTS[0], 64), cupy.float16), cupy.zeros((64, 64), cupy.float16)
    for m in HEIGHTS:
        rows = torch.randn(m, 64, device="cuda").bfloat16()
        wanted = rows @ other
        for run in (several.run, torch_several.matmul):
            torch.testing.assert_close(run(rows, b), wanted, rtol=2e-2, atol=1e-1)
    calls: Calls = {
        "torch.mm": lambda: torch.mm(a, other),
        "torch.mm, out given": lambda: torch.mm(a, other, out=out),
        "CuPy, x @ y in f16": lambda: half[0] @ half[1],
        "module on arrays": lambda: alone.run(x, y),
        "module of several on arrays": lambda: several.run(x, y),
        "module on tensors": lambda: alone.run(a, b),
        "module of several on tensors": lambda: several.run(a, b),
        "module on tensors, out given": lambda: alone.run(a, b, out=out),
        "operator": lambda: torch_alone.matmul(a, b),
        "operator of several": lambda: torch_several.matmul(a, b),
        "operator through torch": lambda: torch_alone._plain(a, b),
    }
    return calls, torch.cuda.synchronize


def measured(calls: Calls, wait: Callable[[], object], rounds: int) -> dict[str, list[float]]:
    """Seconds of a call, by turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name in list(calls)[:: 1 if number % 2 else -1]:
            call = calls[name]
            wait()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            took = time.perf_counter() - began
            if number > 1:
                times[name].append(took / CALLS)
    wait()
    return times


def rows_of(target: str, times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Each contestant beside torch's own operator."""
    medians = {name: 1e6 * statistics.median(found) for name, found in times.items()}
    rows = []
    for name, ours in medians.items():
        low, _, high = statistics.quantiles(times[name], n=4)
        rows.append({
            "case": name, "target": target, "metric": "host time of a call", "unit": "us",
            "ours": ours, "spread": 1e6 * (high - low) / ours, "peer": "torch.mm",
            "peer_value": medians["torch.mm"], "ratio": ours / medians["torch.mm"],
        })  # fmt: skip
    return rows


def header(torch: Any, target: str) -> dict[str, Any]:
    workload = explorer.load("softmax", m=1, n=1, target=target)
    return {
        "hardware": workload.hardware.key, "python": platform.python_version(),
        "torch": torch.__version__, "date": datetime.date.today().isoformat(),
        "command": " ".join(["python experiments/ranges/launch.py", *sys.argv[1:]]),
        "heights": HEIGHTS, "calls": CALLS,
    }  # fmt: skip


def page(known: dict[str, Any]) -> str:
    """The results as tables."""
    lines = [
        "# What a call costs on the host", "",
        "A product so small that the call is all there is, exported alone and as one of",
        f"{len(HEIGHTS)} extents: medians of turns of {CALLS} calls. The operator is the function",
        "of a package for torch; through torch it is called by torch's dispatcher, as compiled",
        "graphs and gradients call it.",
    ]  # fmt: skip
    for target, found in known.items():
        head = found["header"]
        lines += [
            "", f"## {target}", "",
            f"{head['hardware']}, python {head['python']}, torch {head['torch']}. {head['date']}.",
            "", f"    {head['command']}", "",
            "| call | us | spread | beside torch.mm |", "|---|---|---|---|",
        ]  # fmt: skip
        lines += [
            f"| {row['case']} | {row['ours']:.2f} | {row['spread']:.0%} | {row['ratio']:.2f} |"
            for row in found["rows"]
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
