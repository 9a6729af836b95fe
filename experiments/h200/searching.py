"""How soon a search measures, and how many candidates a second: commands as people give them.

    python experiments/h200/searching.py [--out FOLDER] [--seconds 30] [--only start rate large two]

Each search is a command of its own with a store of its own. `start`: seconds from the command to
the first trial, for operands of three sizes, once with empty caches and three times after that.
`rate`: trials a second of a search of so many seconds between its first and its last trial, and the
share of that time in which the device had a candidate. `large`: 256 trials of a large product.
`two`: the rate with one and with two devices. Writes searching.json and searching.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from records import Store  # noqa: E402

STARTS = {
    "10 MB": (["matmul", "m=2048", "n=2048", "k=512", "dtype=bf16"], 3.0),
    "0.3 GB": (["matmul", "m=8192", "n=8192", "k=4096", "dtype=bf16"], 4.0),
    "0.3 GB, attention": (
        ["attention", "b=16", "heads=16", "sq=2048", "d=64", "dtype=bf16"], 4.0,
    ),
    "2 GB": (["softmax", "m=32768", "n=8192"], 6.0),
}  # fmt: skip
RATES = {
    "matmul 2048^3 bf16": (["matmul", "m=2048", "n=2048", "k=2048", "dtype=bf16"], 12.0),
    "matmul 4096x4096x4096 bf16": (
        ["matmul", "m=4096", "n=4096", "k=4096", "dtype=bf16"], 12.0,
    ),
    "attention 2x16x2048x64": (
        ["attention", "b=2", "heads=16", "sq=2048", "d=64", "dtype=bf16"], 8.0,
    ),
    "gated MLP 1024x4096x2048": (
        ["gated_mlp", "m=1024", "n=4096", "k=2048", "dtype=bf16"], 8.0,
    ),
    "layernorm 8192x4096": (["layernorm", "m=8192", "n=4096"], 8.0),
}  # fmt: skip
LARGE = ["matmul", "m=8192", "n=8192", "k=8192", "dtype=bf16"]
LARGE_TRIALS, LARGE_GOAL = 256, 40.0
AGAIN = 3


def search(words: list[str], caches: Path, **options: object) -> dict[str, Any]:
    """One command: seconds to the first trial and to the end, and what its store tells."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "records.db"
        given = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "explorer.cli", "tune", *words, "--target", "cuda",
                   "--records", str(store), "--plain", *given]  # fmt: skip
        environment = os.environ | {"TILEWRIGHT_CACHE": str(caches)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
        began, first, said = time.time(), None, []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if first is None and " trial " in line:
                    first = time.time() - began
        end = time.time() - began
        if process.returncode:
            return {"failed": "".join(said)[-400:]}
        return {"first": first, "end": end} | told(store)


def told(path: Path) -> dict[str, Any]:
    """Of a search: trials, their rate between first and last, how busy the devices were."""
    with Store(path) as store:
        (job,) = store.jobs()
        trials = [r for r in store.records(job=job.id) if r.strategy not in ("final", "heat")]
        notes = [json.loads(record.notes) for record in trials]
    times = sorted(float(note["elapsed"]) for note in notes)
    devices = sorted({note.get("device", 0) for note in notes})
    return {
        "trials": len(trials),
        "rate": (len(times) - 1) / max(times[-1] - times[0], 1e-9),
        "ok": sum(record.status == "ok" for record in trials),
        "devices": devices,
        "span": times[-1] - times[0],
        "examined": json.loads(job.options).get("examined", []),
    }


def starts(caches: Path) -> list[dict[str, Any]]:
    rows = []
    for name, (words, goal) in STARTS.items():
        ever = search(words, caches, trials=4)
        times = [search(words, caches, trials=4).get("first") for _ in range(AGAIN)]
        found = sorted(t for t in times if t is not None)
        rows.append(
            {
                "case": f"first trial, operands of {name}", "goal": f"<= {goal} s",
                "value": round(statistics.median(found), 2) if found else None,
                "all": [round(t, 2) for t in found],
                "first ever": round(ever["first"], 2) if ever.get("first") else ever,
                "met": bool(found) and statistics.median(found) <= goal,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def rates(caches: Path, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for name, (words, goal) in RATES.items():
        found = search(words, caches, seconds=seconds)
        busy = found.get("examined", [0])[0] / max(found.get("span", 1.0), 1e-9)
        rows.append(
            {
                "case": f"{name}, {seconds:.0f} s", "goal": f">= {goal:.0f} trials/s, busy >= 60 %",
                "value": round(found.get("rate", 0.0), 1), "busy": round(min(busy, 1.0), 2),
                **found,
                "met": found.get("rate", 0.0) >= goal and busy >= 0.6,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def large(caches: Path) -> list[dict[str, Any]]:
    found = search(LARGE, caches, trials=LARGE_TRIALS)
    row = {
        "case": f"{LARGE_TRIALS} trials of 8192^3 bf16, finals included",
        "goal": f"<= {LARGE_GOAL:.0f} s", "value": round(found.get("end", 0.0), 1), **found,
        "met": 0 < found.get("end", 0.0) <= LARGE_GOAL,
    }  # fmt: skip
    print(row, flush=True)
    return [row]


def two(caches: Path, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for name, (words, _) in list(RATES.items())[1:3]:
        search(words, caches, trials=4)
        one, both = (search(words, caches, seconds=seconds, devices=d) for d in ("0", "0,1"))
        ratio = both.get("rate", 0.0) / max(one.get("rate", 0.0), 1e-9)
        rows.append(
            {
                "case": f"{name}: trials/s of two devices over one", "goal": ">= 1.8",
                "value": round(ratio, 2), "one": one, "two": both, "met": ratio >= 1.8,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def page(found: dict[str, Any]) -> str:
    lines = [
        "# How soon a search measures, and how fast", "",
        f"{found['hardware']}, {found['versions']}, {found['date']}; `{found['command']}`.", "",
        "| case | goal | measured | besides |", "|---|---|---|---|",
    ]  # fmt: skip
    for row in found["rows"]:
        besides = ", ".join(
            f"{name} {row[name]}" for name in ("first ever", "busy", "trials", "ok") if name in row
        )
        lines.append(f"| {row['case']} | {row['goal']} | {row['value']} | {besides} |")
    return "\n".join([*lines, ""])


def facts() -> dict[str, Any]:
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    card = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return {
        "hardware": f"{count} x {card}, {os.cpu_count()} processors",
        "versions": f"CuPy {cupy.__version__}, Python {sys.version.split()[0]}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python " + " ".join(["experiments/h200/searching.py", *sys.argv[1:]]),
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path, default=HERE)
    words.add_argument("--seconds", type=float, default=30.0)
    words.add_argument("--only", nargs="*", default=["start", "rate", "large"])
    given = words.parse_args()
    parts = {
        "start": starts,
        "rate": lambda caches: rates(caches, given.seconds),
        "large": large,
        "two": lambda caches: two(caches, given.seconds),
    }
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as caches:
        for name in given.only:
            rows += parts[name](Path(caches))
    name = "searching-two" if given.only == ["two"] else "searching"
    found = facts() | {"rows": rows}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (given.out / f"{name}.md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
