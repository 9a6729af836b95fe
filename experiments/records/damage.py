"""Flip bits of a store and cut its end, and count what `check` tells and which rows are wrong.

python -m experiments.records.damage OUT.json
"""

from __future__ import annotations

import json
import logging
import random
import sys
import tempfile
from pathlib import Path

from records import Pruning, Store
from tests.records.conftest import make_record
from tests.records.damage import Kept, clear, cuts, flips, refusal, wrong_rows

SEEDS = (1, 2)
FLIPS, CUTS = 200, 50


def main(out: Path) -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        found = [trial(Path(folder), seed) for seed in SEEDS]
    out.write_text(json.dumps(found, indent=2) + "\n")
    print(out.read_text())


def trial(folder: Path, seed: int) -> dict[str, int]:
    """All damage of one seed to one store; every store has another history."""
    path, broken = folder / f"{seed}.db", folder / "broken.db"
    fill(path, random.Random(seed))
    kept, whole = Kept.of(path), path.read_bytes()
    found = {"seed": seed, "bytes": len(whole), "trials": len(kept.records)}
    rng = random.Random(1000 + seed)
    for kind, damage in (("flips", flips(whole, FLIPS, rng)), ("cuts", cuts(whole, CUTS, rng))):
        told = wrong = count = 0
        for _, content in damage:
            broken.write_bytes(content)
            count += 1
            told += bool(refusal(broken))
            wrong += wrong_rows(broken, kept, read_only=bool(count % 2))
            clear(broken)
        found |= {kind: count, f"{kind}_told": told, f"{kind}_wrong_rows": wrong}
    return found


def fill(path: Path, rng: random.Random) -> None:
    """Jobs, trials of all lengths, leases; some deleted again, so that there is free room."""
    with Store(path) as store:
        for number in range(rng.randrange(2, 6)):
            store.update_job(store.new_job("matmul", '{"m":512}', "cpu").id, "done")
            first = 100 * number
            lengths = [rng.choice((0, 40, 400, 9000)) for _ in range(rng.randrange(5, 25))]
            batch = [make_record(first + n, detail="x" * size) for n, size in enumerate(lengths)]
            store.add_all(batch)
        store.claim([record.candidate for record in batch[:9]], "somebody", 60)
        store.prune(Pruning(keep_best=rng.randrange(10, 40)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
