"""Trains the shipped models from the records beside this script, and tells what they are worth.

    python experiments/model/train.py [--store model.db ...] [--only cpu] [--no-evaluation]

With --store the CPU's records are first replaced by those of the stores. Writes
costmodel/pretrained/TARGET.json.xz and results.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from costmodel.dataset import Group, train  # noqa: E402
from costmodel.evaluate import SPLITS, Evaluation, cross_validate, lines  # noqa: E402
from costmodel.features import feature_names, featurise  # noqa: E402
from costmodel.model import CostModel  # noqa: E402
from costmodel.saved import TrainedModel, library_versions  # noqa: E402
from explorer.recall import open_store  # noqa: E402
from explorer.training import read_groups  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from records import Record, export_records  # noqa: E402

RECORDS = {
    "cpu": (HERE / "cpu.jsonl.xz",),
    "cuda": tuple(
        ROOT / "experiments" / "h200" / name
        for name in (
            "records-cuda-42.jsonl.xz",
            "records-cuda-41.jsonl.xz",
            "records-cuda-40.jsonl.xz",
            "records-cuda-39.jsonl.xz",
            "records-cuda-38.jsonl.xz",
            "records-cuda-36.jsonl.xz",
            "records-cuda-33.jsonl.xz",
            "records-cuda-31.jsonl.xz",
            "records-cuda-29.jsonl.xz",
            "records-cuda-28.jsonl.xz",
            "records.jsonl.xz",
            "records-cuda-3.jsonl.xz",
            "records-cuda-2.jsonl.xz",
            "records-cuda-1.jsonl.xz",
        )
    ),
}
OPERATORS = tuple(  # whose records are among them, beside those of the library
    str(ROOT / "experiments" / "corpus" / name)
    for name in (
        "afterwards.py",
        "assorted.py",
        "chosen.py",
        "hybrids.py",
        "oddities.py",
        "programs.py",
        "rarer.py",
        "reworded.py",
        "sequences.py",
        "sundry.py",
        "varied.py",
        "windowed.py",
    )
)
PRETRAINED = ROOT / "costmodel" / "pretrained"
Row = dict[str, Any]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--store", nargs="+", help="stores that become the CPU's records")
    words.add_argument("--only", choices=sorted(RECORDS))
    words.add_argument("--no-evaluation", action="store_true")
    options = words.parse_args()
    if options.store:
        _export(options.store, RECORDS["cpu"][0])
    found: list[Row] = []
    for target, sources in RECORDS.items():
        if options.only not in (None, target):
            continue
        groups = read_groups([str(path) for path in sources], target, OPERATORS)
        model = train(groups)
        model.save(PRETRAINED / f"{target}.json.xz")
        print(f"{target}: {dict(model.data)}", flush=True)
        if not options.no_evaluation:
            found += _evaluated(target, groups)
            if target == "cpu":
                found += _speed(model)
    if found:
        _write(found, options.only)


def _export(stores: Sequence[str], path: Path) -> None:
    """The stores' trials as a compressed export, without what no model reads."""
    with tempfile.TemporaryDirectory() as folder, open_store(":memory:") as thin:
        for store in stores:
            with open_store(store) as records:
                thin.add_all(map(_thin, records.records(target="cpu")))
        plain = Path(folder) / "records.jsonl"
        export_records(thin, plain)
        path.write_bytes(lzma.compress(plain.read_bytes(), preset=9))


def _thin(record: Record) -> Record:
    """Four digits of the time, and nothing of how it came about."""
    seconds = record.seconds and float(f"{record.seconds:.4g}")
    return replace(
        record,
        seconds=seconds,
        quartiles=None,
        error=None,
        compile_seconds=None,
        clock_ghz=None,
        detail="",
        job="",
        kernel_key=record.kernel_key[:16],
        created=record.created[:13] + ":00:00+00:00",
    )


def _evaluated(target: str, groups: Sequence[Group]) -> list[Row]:
    found: list[Row] = []
    for split in SPLITS:
        evaluation = cross_validate(groups, split)
        print(f"{target}, {split} left out", *lines(evaluation), sep="\n", flush=True)
        found += _rows(f"{target}, {split} left out", evaluation)
    return found


def _rows(case: str, evaluation: Evaluation) -> list[Row]:
    """The model against every rival: regrets (lower is better) and correlations."""
    summary = evaluation.summary()
    ours = summary["model"]
    found = []
    for peer, theirs in summary.items():
        if peer == "model":
            continue
        for name in ("top1", "top5", "top10", "top5.mean", "top10.mean"):
            metric = f"{name} regret" + ("" if ".mean" in name else ", median over workloads")
            ratio = theirs[name] / ours[name]
            found.append(_row(case, metric, "x best", ours[name], peer, theirs[name], ratio))
        for name in ("top5.within2", "top10.within10", "correlation"):
            value = theirs[name]
            ratio = ours[name] / value if value > 0 else None
            found.append(_row(case, name, "share", ours[name], peer, value, ratio))
    seen = evaluation.calibration
    for name in ("time_error", "time_within_quarter", "valid_given", "failed_given", "brier"):
        value = getattr(seen, name)
        found.append(_row(case, f"calibration, {name}", "", value if value == value else None))
    return found


def _row(
    case: str, metric: str, unit: str, ours: float | None, peer: str = "",
    value: float | None = None, ratio: float | None = None,
) -> Row:  # fmt: skip
    return {
        "case": case, "metric": metric, "unit": unit, "ours": ours, "peer": peer,
        "peer_value": value, "ratio": ratio, "spread": None,
    }  # fmt: skip


def _speed(trained: TrainedModel) -> list[Row]:
    """Schedules scored in a second, and a search's model fitted to 5,000 trials; one core."""
    found = []
    for operator, arguments in (
        ("matmul", {"m": 1024, "n": 1024, "k": 1024}),
        ("attention", {"b": 1, "heads": 16, "sq": 512, "d": 64, "dtype": "bf16"}),
    ):
        space = Workload.of(operator, arguments).space()
        rows = space.sample(np.random.default_rng(0), 5000)
        scored = min(_seconds(partial(trained.score, space, rows)) for _ in range(3))
        found.append(_row(operator, "featurised and scored", "schedules/s", 5000 / scored))
        seconds = 1.0 / np.clip(trained.score(space, rows), 1e-3, None)
        features = featurise(space, rows)
        ok = np.arange(5000) % 20 > 0
        fresh = [CostModel(0, names=feature_names(space)) for _ in range(3)]
        fitted = min(_seconds(partial(m.fit, features, seconds, ok)) for m in fresh)
        found.append(_row(operator, "fitted to 5,000 trials", "s", fitted))
    for row in found:
        print(f"{row['case']}: {row['metric']}: {row['ours']:.4g} {row['unit']}")
    return found


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _write(found: list[Row], only: str | None) -> None:
    path = HERE / "results.json"
    if only and path.exists():  # keep what this call did not measure
        cases = {row["case"] for row in found}
        kept = [row for row in json.loads(path.read_text())["rows"] if row["case"] not in cases]
        found = kept + found
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    header = {
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "command": "python experiments/model/train.py",
        "versions": library_versions(),
        "python": sys.version.split()[0],
    }
    path.write_text(json.dumps({"header": header, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
