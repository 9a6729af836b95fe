"""Measures every legal schedule of the spaces in `spaces.py`, and keeps them as compressed exports.

    python experiments/search/record.py --scratch FOLDER [--spaces NAME...] [--seconds 3000]

Resumable: what is in the scratch folder's stores is not measured again. The order is random, so
that drift of the machine meets all regions of a space alike.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from spaces import CASES, FOLDER, Case  # noqa: E402

from explorer.measure import Measurer  # noqa: E402
from explorer.outcome import Outcome  # noqa: E402
from explorer.recall import known_trials, to_record  # noqa: E402
from explorer.runtime.workers import Timing  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from records import Store, export_records  # noqa: E402

BATCH = 32
TIMING = Timing(fewest=5, most=15, budget=0.02, cut=4.0, slow=3.0)


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--scratch", type=Path, required=True, help="folder of stores and code")
    words.add_argument("--spaces", nargs="*", help="names; default: those not recorded yet")
    words.add_argument("--seconds", type=float, default=3000.0, help="budget of this call")
    return words.parse_args()


def record(case: Case, scratch: Path, end: float) -> bool:
    """Measure what is left of a space; whether all of it is measured now."""
    workload, space = case.workload, case.space()
    rows = np.concatenate(list(space.exhaustive()))
    rows = np.random.default_rng(0).permutation(rows)
    with Store(scratch / f"{case.name}.db") as store:
        known = dict(known_trials(store, workload))
        left = [s for s in map(space.schedule, rows) if s not in known]
        print(f"{case.name}: {len(rows)} schedules, {len(left)} to measure", flush=True)
        if left:
            _measure(workload, left, known, store, scratch, end)
        if store.count() < len(rows):
            return False
        _compress(store, case.path)
        return True


def _measure(
    workload: Workload,
    schedules: list[Schedule],
    known: dict[Schedule, Outcome],
    store: Store,
    scratch: Path,
    end: float,
) -> None:
    with Measurer(
        workload.program,
        workload.target,
        workload.hardware,
        cache_dir=scratch / "code",
        timing=TIMING,
    ) as measurer:
        measurer.best = min((o.seconds for o in known.values() if o.seconds), default=None)
        measurer.kernels = {o.kernel_key: o for o in known.values() if o.kernel_key}
        for start in range(0, len(schedules), BATCH):
            batch = schedules[start : start + BATCH]
            for schedule, outcome in zip(batch, measurer.measure(batch), strict=True):
                if outcome.copied:
                    outcome = replace(outcome, notes=(*outcome.notes, ("copied", True)))
                store.add(to_record(workload, schedule, outcome, "", "exhaustive"))
            if time.monotonic() > end:
                return


def _compress(store: Store, path: Path) -> None:
    """An export of the store, by xz."""
    path.parent.mkdir(exist_ok=True)
    plain = Path(store.location).with_suffix(".jsonl")
    export_records(store, plain)
    path.write_bytes(lzma.compress(plain.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    plain.unlink()
    statuses = {s: store.count(status=s) for s in ("ok", "wrong_result", "compile_error", "crash")}
    print(f"wrote {path}: {path.stat().st_size:,} bytes; {json.dumps(statuses)}", flush=True)


def main() -> None:
    chosen = options()
    end = time.monotonic() + chosen.seconds
    chosen.scratch.mkdir(parents=True, exist_ok=True)
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        wanted = case.name in chosen.spaces if chosen.spaces else not case.path.exists()
        if wanted and time.monotonic() < end and not record(case, chosen.scratch, end):
            print(f"{case.name}: not finished; run again", flush=True)


if __name__ == "__main__":
    main()
