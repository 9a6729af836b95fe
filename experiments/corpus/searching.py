"""One operator's search, for a process of its own: prints what it found as a line of JSON.

python searching.py NAME ARGUMENTS TARGET SECONDS [STORE]; without a store its records are not kept
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> None:
    name, arguments, target, seconds, *kept = sys.argv[1:]
    from explorer.job import tune
    from explorer.recall import DAMNING, open_store
    from explorer.result import Progress
    from ir.errors import TilewrightError

    began = time.monotonic()
    first: list[float] = []

    def heard(progress: Progress) -> None:
        if not first:
            first.append(round(time.monotonic() - began, 1))

    with tempfile.TemporaryDirectory() as folder:
        store = Path(kept[0] if kept else folder + "/records.db")
        try:
            found = tune(
                name, json.loads(arguments), target=target, seconds=float(seconds),
                store=store, baseline=False, progress=heard,
            )  # fmt: skip
        except TilewrightError as error:
            sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
        with open_store(store) as records:
            damned = [
                {"status": one.status, "detail": one.detail, "schedule": one.schedule}
                for one in records.records()
                if one.status in DAMNING
            ]
    row = {
        "found_seconds": found.seconds, "trials": found.trials, "outcomes": dict(found.outcomes),
        "first_trial": first[0] if first else None,
        "search_took": round(time.monotonic() - began, 1), "schedule": found.best.to_json(),
        **({"damned": damned} if damned else {}),
    }  # fmt: skip
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
