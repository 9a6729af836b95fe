"""Right and wrong kernels through the examiner: none of the right refused, all of the wrong caught.

    python experiments/check/mutants.py --target cuda --jobs 12 --seconds 200 --out DIR

Each case (a program) runs in a process of its own: right kernels of seeds and of drawn schedules;
outputs edited behind a right kernel's launch; launches that go wrong in one call and not another;
kernels of programs that lack an operand, a mask or terms. With `--target emulated` or `cpu` it runs
where there is no GPU, on smaller extents.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from explorer.runtime.cuda import CudaRuntime  # noqa: E402
from ir.program import Program  # noqa: E402
from ir.registry import load_operator  # noqa: E402
from ir.target import get_backend  # noqa: E402
from ir.targets.cuda.rows.hardware import known_hardware  # noqa: E402
from ir.targets.cuda.rows.roundoff import ACCUMULATIONS  # noqa: E402
from tests.mutants import cases as small  # noqa: E402
from tests.mutants import operators as own  # noqa: E402
from tests.mutants.launches import Faulty  # noqa: E402
from tests.mutants.runtimes import EmulatedRuntime, HereRuntime  # noqa: E402
from tests.mutants.suite import Found, Machine, Suite  # noqa: E402
from tests.targets import quantised, unforeseen  # noqa: E402

_UNSEEN = Path(unforeseen.__file__).with_name("unseen.py")
_FLOATS: tuple[tuple[Any, dict[str, Any]], ...] = tuple(
    (name, {**arguments, "dtype": dtype})
    for dtype in ("bf16", "f16", "f32", "tf32", "e4m3")
    for name, arguments in (
        ("matmul", {"m": 256, "n": 384, "k": 1024, "tb": True}),
        ("matmul_bias_act", {"m": 136, "n": 256, "k": 512}),
        ("softmax", {"m": 64, "n": 2000}),
        ("attention", {"b": 1, "heads": 2, "sq": 128, "sk": 1024, "d": 64}),
    )
)  # fmt: skip
_NARROW: tuple[tuple[Any, dict[str, Any]], ...] = tuple(
    (name, {**arguments, "dtype": dtype})
    for dtype in ("bf16", "f32")
    for name, arguments in (
        ("gated_mlp", {"m": 136, "n": 256, "k": 256}),
        ("layernorm", {"m": 64, "n": 2048}),
        ("rmsnorm", {"m": 64, "n": 2048}),
        ("attention", {"b": 1, "heads": 2, "sq": 256, "d": 64, "causal": True}),
        ("row_sum", {"m": 64, "n": 20000}),
        ("column_sum", {"m": 20000, "n": 64}),
        ("row_max", {"m": 64, "n": 2000}),
        ("column_max", {"m": 2000, "n": 64}),
        ("conv2d", {"n": 1, "h": 16, "w": 16, "c": 64, "f": 64, "padding": 1}),
        ("gaussian", {"m": 200, "n": 160, "d": 8}),
    )
)  # fmt: skip
LARGE: tuple[tuple[Any, dict[str, Any]], ...] = (
    *_FLOATS, *_NARROW,
    ("scaled_matmul", {"m": 256, "n": 256, "k": 1024}),
    ("matmul", {"m": 256, "n": 256, "k": 512, "dtype": "i8", "tb": True}),
    ("matmul", {"m": 64, "n": 128, "k": 16384, "dtype": "bf16", "tb": True}),
    (f"{_UNSEEN}:embedding_bag", {"b": 200, "n": 33, "e": 256, "rows": 5000}),
    (unforeseen.gram, {"m": 200, "k": 256, "dtype": "bf16"}),
    (unforeseen.neighbours, {"m": 310, "n": 470}),
    (unforeseen.cosine, {"m": 256, "n": 200, "k": 512, "dtype": "bf16"}),
    (unforeseen.kronecker, {"m": 512, "a": 32, "b": 32, "dtype": "bf16"}),
    (unforeseen.listed_tiles, {"m": 128, "n": 256, "tiles": 6, "depth": 64, "dtype": "bf16"}),
    (unforeseen.written_carries, {"m": 130, "n": 2000}),
    (unforeseen.weighted_rows, {"m": 128, "n": 128, "k": 512, "dtype": "bf16"}),
    (unforeseen.moments, {"m": 300, "n": 500}),
    (unforeseen.scalars, {"n": 5000}),
    (unforeseen.wide_integers, {"m": 100, "n": 90, "k": 70}),
    (unforeseen.residual_convolution, {"n": 16, "c": 64, "dtype": "f16"}),
    (unforeseen.entropy, {"m": 128, "v": 1000, "d": 128, "dtype": "bf16"}),
    (quantised.w4_grouped, {"m": 128, "n": 256, "groups": 16, "bytes": 32}),
    (quantised.w8_rows, {"m": 128, "n": 256, "k": 1024}),
    (own.masked_softmax, {"m": 64, "n": 2000, "dtype": "f16"}),
    (own.nearest_point, {"m": 200, "n": 150, "d": 32}),
    (own.above_mean, {"m": 200, "n": 700, "dtype": "f32"}),
    (own.quantised_rows, {"m": 200, "n": 700}),
    (own.counted, {"m": 400, "n": 300}),
    (own.logarithms, {"m": 200, "n": 330}),
    (own.ragged_mean, {"b": 60, "n": 200, "d": 64, "dtype": "bf16"}),
    (own.narrow_norm, {"m": 200, "n": 960}),
    (own.cross_entropy, {"m": 200, "n": 1500}),
    (own.gathered_rows, {"m": 300, "n": 400, "rows": 640, "dtype": "f16"}),
    (own.mean_and_deviation, {"m": 900, "n": 300, "dtype": "bf16"}),
    (own.segment_sizes, {"n": 7000, "total": 90000}),
    (own.softcap_attention, {"h": 2, "q": 128, "k": 1024, "d": 64}),
    (own.banded, {"m": 200, "k": 256, "dtype": "bf16"}),
)  # fmt: skip


def cases(large: bool) -> tuple[tuple[Any, dict[str, Any]], ...]:
    return LARGE if large else small.CASES


def built(case: tuple[Any, dict[str, Any]]) -> Program:
    operator, arguments = case
    return (load_operator(operator) if isinstance(operator, str) else operator).build(**arguments)


def name_of(case: tuple[Any, dict[str, Any]]) -> str:
    operator, arguments = case
    name = operator.rpartition(":")[2] if isinstance(operator, str) else operator.name
    return f"{name} {' '.join(f'{key}={value}' for key, value in arguments.items())}"


def machine(target: str) -> Machine:
    """Who lowers and who runs, on this machine."""
    if target == "cpu":
        backend = get_backend("cpu")
        return Machine(backend, backend.hardware(1), Faulty(HereRuntime()))
    backend = get_backend("cuda")
    if target == "emulated":
        return Machine(backend, known_hardware("h200"), Faulty(EmulatedRuntime()), ACCUMULATIONS)
    hardware = backend.hardware()
    adds = backend.accumulations(hardware)  # type: ignore[attr-defined]
    return Machine(backend, hardware, Faulty(CudaRuntime()), adds)


def judged(target: str, large: bool, number: int, count: int) -> dict[str, Any]:
    """What became of the kernels of one case; what failed is told, with what came before."""
    case = cases(large)[number]
    row: dict[str, Any] = {"case": name_of(case)}
    found = Found()
    start = time.monotonic()
    try:
        with Suite(built(case), machine(target)) as suite:
            found = suite.found
            for stage in (lambda: suite.calibrate(count, count), suite.judge_launches,
                          lambda: suite.judge_programs(2)):  # fmt: skip
                stage()
    except Exception:  # noqa: BLE001 (told with the others)
        row["failed"] = traceback.format_exc()[-1500:]
    return row | {
        "right": found.right, "used": found.used, "refused": found.refused, "caught": found.caught,
        "alive": found.alive, "like_right": found.like_right, "unbuilt": found.unbuilt,
        "took_s": round(time.monotonic() - start, 2),
    }  # fmt: skip


def apart(target: str, large: bool, number: int, count: int, end: float) -> dict[str, Any]:
    """The same in a process of its own, which may crash."""
    name, left = name_of(cases(large)[number]), end - time.monotonic()
    if left < 5:
        return {"case": name, "failed": "no time was left"}
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, __file__, "--target", target, "--one", str(number),
                   "--count", str(count), "--out", file.name]  # fmt: skip
        command += ["--large"] if large else []
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=left, check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"case": name, "failed": "no time was left"}
        text = Path(file.name).read_text()
        row: dict[str, Any] = (
            json.loads(text) if text else {"case": name, "failed": done.stderr[-1500:]}
        )
    print(f"{row['case']}: {summary([row])}", flush=True)
    return row


def total(rows: Sequence[dict[str, Any]], what: str) -> int:
    found = (row.get(what, ()) for row in rows)
    return sum(one if isinstance(one, int) else len(one) for one in found)


def used(rows: Sequence[dict[str, Any]]) -> str:
    """The largest, and whose."""
    most = max(rows, key=lambda row: row.get("used", 0.0))
    return f"{most.get('used', 0.0)}, {most['case'].split()[0]}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    words = ("right", "refused", "caught", "alive", "like_right", "unbuilt")
    failed = sum("failed" in row for row in rows)
    return ", ".join(f"{word} {total(rows, word)}" for word in words) + f", failed {failed}"


def table(target: str, rows: Sequence[dict[str, Any]]) -> str:
    """The result in a few lines, and every kernel on which the check was wrong."""
    operators = {row["case"].partition(" ")[0] for row in rows}
    wrong = total(rows, "caught") + total(rows, "alive")
    lines = [
        f"| on {target} | |", "|---|---|",
        f"| programs, of {len(operators)} operators | {len(rows)} |",
        f"| right kernels | {total(rows, 'right')} |",
        f"| of them refused | {total(rows, 'refused')} |",
        f"| largest part of its room that an element took | {used(rows)} |",
        f"| wrong kernels | {wrong} |",
        f"| of them caught | {total(rows, 'caught')} |",
        f"| not to be told from right ones by anybody | {total(rows, 'like_right')} |",
        f"| programs that failed otherwise | {sum('failed' in row for row in rows)} |", "",
    ]  # fmt: skip
    for row in rows:
        lines += [f"- alive: {row['case']}: {what}" for what in row.get("alive", ())]
        lines += [f"- refused: {row['case']}: {what[:300]}" for what in row.get("refused", ())]
        lines += [f"- unbuilt: {row['case']}: {what[:200]}" for what in row.get("unbuilt", ())]
        if "failed" in row:
            lines.append(f"- failed: {row['case']}: {row['failed'].strip().splitlines()[-1][:300]}")
    return "\n".join(lines) + "\n"


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--target", default="emulated", choices=("cuda", "cpu", "emulated"))
    words.add_argument("--out", default=".", help="folder of mutants-TARGET.json and .md")
    words.add_argument("--count", type=int, default=2, help="right kernels: so many seeds, drawn")
    words.add_argument("--jobs", type=int, default=1, help="cases side by side")
    words.add_argument("--seconds", type=float, default=200)
    words.add_argument("--cases", nargs="*", default=[], help="only those whose name has a word")
    words.add_argument("--large", action="store_true", help="extents of a GPU, as on one")
    words.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    return words.parse_args()


def main() -> None:
    given = options()
    given.large |= given.target == "cuda"
    if given.one is not None:
        row = judged(given.target, given.large, given.one, given.count)
        Path(given.out).write_text(json.dumps(row))
        return
    end = time.monotonic() + given.seconds
    wanted = [
        number
        for number, case in enumerate(cases(given.large))
        if not given.cases or any(word in name_of(case) for word in given.cases)
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(
            pool.map(lambda n: apart(given.target, given.large, n, given.count, end), wanted)
        )
    said = table(given.target, rows)
    facts = {"date": time.strftime("%Y-%m-%d"), "target": given.target, "cases": rows}
    where = Path(given.out, f"mutants-{given.target}")
    where.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    where.with_suffix(".md").write_text(said)
    print(said)


if __name__ == "__main__":
    main()
