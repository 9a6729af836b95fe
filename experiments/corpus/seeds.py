"""What searches begin with on a card: the first seeds of programs at full extents, timed alone.

    python experiments/corpus/seeds.py frontier packed updates particles signals [--count 4]
    python experiments/corpus/seeds.py updates:grpo softmax:m=4096,n=65536 --count 60 --out FILE
    python experiments/corpus/seeds.py table

Spaces are made, kernels lowered and compiled by several processes; then each kernel runs on drawn
inputs, nothing beside it. Nothing is judged here: searches and tests do that. Rows go to
seeds-cuda.json, and a table of them to seeds-cuda.md; those of programs that are named again are
replaced.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import numpy as np  # noqa: E402

from costmodel.features import IDEAL  # noqa: E402
from explorer.runtime.base import Binary, HasParts  # noqa: E402
from explorer.runtime.cuda import CudaRuntime, cupy  # noqa: E402
from explorer.strategies.opening import estimates, first_rows  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.inputs import drawn_inputs  # noqa: E402

Row = dict[str, Any]
JSON, PAGE = HERE / "seeds-cuda.json", HERE / "seeds-cuda.md"
LONG = 0.05  # seconds of a run that is not repeated


def named(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Files and names of programs: of a file all or one, or an operator of the library and its
    arguments, which has no file."""
    for word in words:
        first, _, rest = word.partition(":")
        if "=" in rest:
            yield "", word
        else:
            names = [rest] if rest else importlib.import_module(first).EXTENTS
            yield from ((first, name) for name in names)


def workload(file: str, name: str) -> Workload:
    if not file:
        operator, _, said = name.partition(":")
        pairs = (word.split("=") for word in said.split(","))
        given = {key: int(value) if value.isdigit() else value for key, value in pairs}
        return Workload.of(operator, given, "cuda")
    extents = importlib.import_module(file).EXTENTS[name]["full"]
    return Workload.of(f"{HERE}/{file}.py:{name}", extents, "cuda")


def compiled(file: str, name: str, count: int, folder: str) -> Row:
    """The first seeds of a program, each with its estimate and its machine code."""
    began = time.monotonic()
    work = workload(file, name)
    space = work.space()
    rows = space.seed_rows(np.random.default_rng(0))
    names, table = space.features(space.columns(rows[:1])) if space.features else ((), None)
    ideal = 2.0 ** float(table[0, [*names].index(IDEAL)]) if table is not None else float("nan")
    found: Row = {"program": name, "file": file, "least": ideal, "seeds": len(rows)}
    found["space_seconds"] = time.monotonic() - began
    runtime, kernels = CudaRuntime(), []
    for row in first_rows(space, rows)[:count]:
        schedule = space.schedule(row)
        estimate = ideal * 2.0 ** float(estimates(space, row[None, :])[0])
        binary = runtime.compile(work.kernel(schedule), Path(folder))
        kernels.append((estimate, schedule.to_json(), binary))
    return found | {"kernels": kernels}


def timed(row: Row, runtime: CudaRuntime) -> Row:
    """With what each kernel takes, alone."""
    program = workload(row["file"], row["program"]).program
    arrays = dict(drawn_inputs(program, 0, cupy()))
    arrays |= {spec.name: runtime.empty(spec.shape, spec.dtype) for spec in program.outputs}
    times = []
    for estimate, schedule, binary in row["kernels"]:
        assert isinstance(binary, Binary)
        kernel = runtime.load(binary)
        launch = kernel.bind([arrays[argument.name] for argument in binary.operands])
        first = launch(1)
        seconds = min(first, *(launch(1) for _ in range(3 if first < LONG else 1)))
        parts = launch.parts(2) if isinstance(launch, HasParts) and first < LONG else ()
        times.append({"estimate": estimate, "seconds": seconds, "schedule": schedule,
                      "parts": [[name, took] for name, took in parts]})  # fmt: skip
        kernel.close()
    return {key: value for key, value in row.items() if key != "kernels"} | {"kernels": times}


def rows_of(files: list[str], count: int, processes: int, seconds: float) -> Iterator[Row]:
    """Those that are there within so many seconds."""
    end, runtime = time.monotonic() + seconds, CudaRuntime()
    runtime.prepare(0)
    apart = multiprocessing.get_context("spawn")  # none has the device of this process
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(processes, mp_context=apart) as pool,
    ):
        made = {pool.submit(compiled, f, n, count, folder): n for f, n in named(files)}
        for future in as_completed(made):
            if time.monotonic() > end:
                pool.shutdown(wait=False, cancel_futures=True)
                return
            try:
                yield timed(future.result(), runtime)
            except Exception as problem:  # noqa: BLE001 - one program must not end the others
                yield {"program": made[future], "failed": repr(problem)[:200]}
            cupy().get_default_memory_pool().free_all_blocks()


def table() -> str:
    told = json.loads(JSON.read_text())
    lines = [
        "# Seeds of programs that no file foresaw", "", f"{told['device']}. {told['date']}.", "",
        f"    {told['command']}", "",
        "The first seeds that a search tries, by themselves on the card, ms: the least that the "
        "program takes (bytes once, operations at their rate), the first one, its estimate, and "
        "the best of the first few. Nothing is judged in these runs.", "",
        "| program | least | first seed | estimate | best of the first | seeds | space, s |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    rows = sorted(told["rows"], key=lambda row: str(row["program"]))
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['program']} | | {row['failed'][:60]} | | | | |")
            continue
        first, *_ = row["kernels"]
        best = min(kernel["seconds"] for kernel in row["kernels"])
        numbers = (row["least"], first["seconds"], first["estimate"], best)
        cells = " | ".join(f"{1e3 * number:.3g}" for number in numbers)
        lines.append(
            f"| {row['program']} | {cells} | {row['seeds']} | {row['space_seconds']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("files", nargs="+", help="FILE, FILE:NAME or OPERATOR:NAME=VALUE,...")
    words.add_argument("--count", type=int, default=4)
    words.add_argument("--processes", type=int, default=14)
    words.add_argument("--seconds", type=float, default=480.0, help="budget of this call")
    words.add_argument("--out", type=Path, default=JSON)
    given = words.parse_args()
    if given.files != ["table"]:
        known = json.loads(JSON.read_text())["rows"] if JSON.exists() else []
        rows = {row["program"]: row for row in known}
        for row in rows_of(given.files, given.count, given.processes, given.seconds):
            rows[row["program"]] = row
            print(row["program"], row.get("failed") or row["kernels"][0]["seconds"], flush=True)
        told = {
            "device": cupy().cuda.runtime.getDeviceProperties(0)["name"].decode(),
            "date": f"{datetime.date.today()}",
            "command": "python experiments/corpus/seeds.py " + " ".join(sys.argv[1:]),
            "rows": [*rows.values()],
        }
        given.out.write_text(json.dumps(told, indent=1) + "\n")
        return
    PAGE.write_text(table())


if __name__ == "__main__":
    main()
