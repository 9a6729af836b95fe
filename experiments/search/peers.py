"""Our search against Optuna and Kernel Tuner on recorded spaces: who gets how close how soon.

    python experiments/search/peers.py [--seeds 20] [--seconds 3000] [--again PLAYER...]

Every player searches every space of `spaces.py` with each seed; what was recorded answers.
Resumable: courses that results.json holds of the same recording are not run again, unless
`--again` names the player. Needs `pip install kernel-tuner` and the extra `optuna`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from players import PLAYERS
from replayed import BUDGET, MARKS, Replayed
from spaces import CASES, Case
from table import render

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
OURS = "evolutionary"
Played = dict[str, Any]


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seeds", type=int, default=20)
    words.add_argument("--seconds", type=float, default=3000.0, help="budget of this call")
    words.add_argument("--players", nargs="*", default=list(PLAYERS))
    words.add_argument("--spaces", nargs="*", default=[case.name for case in CASES])
    words.add_argument("--again", nargs="*", default=[], help="players whose courses are run anew")
    return words.parse_args()


def play(table: Replayed, player: str, seeds: int) -> Played:
    """The courses of one player: area for each seed, and the mean course at the marks."""
    courses = np.array([table.course(PLAYERS[player](table, seed)) for seed in range(seeds)])
    return {
        "seeds": seeds,
        "areas": [round(float(area), 5) for area in courses.mean(axis=1)],
        "at": {str(mark): round(float(courses[:, mark - 1].mean()), 4) for mark in MARKS},
    }


def digest(case: Case) -> str:
    return hashlib.sha256(case.path.read_bytes()).hexdigest()[:16]


def space_facts(table: Replayed) -> dict[str, Any]:
    """What makes the space easy or hard."""
    times = np.array(list(table.seconds.values()))
    ratios = times / table.optimum
    return {
        "digest": digest(table.case),
        "held_out": table.case.held_out,
        "schedules": len(times),
        "decisions": len(table.bare.shape.free),
        "milliseconds": round(table.optimum * 1e3, 4),
        "median": round(float(np.median(ratios)), 2),
        "within5": int((ratios < 1.05).sum()),
    }


def rows(played: dict[str, dict[str, Played]]) -> list[dict[str, Any]]:
    """Areas of ours over each player's, and of their means over all spaces."""
    found = []
    peers = [player for player in PLAYERS if player != OURS]
    for peer in peers:
        both = [case for case in played if {OURS, peer} <= set(played[case])]
        for case in both:
            found.append(_row(case, peer, played[case][OURS], played[case][peer]))
        if both:
            means = [[statistics.mean(played[c][p]["areas"]) for c in both] for p in (OURS, peer)]
            found.append(_row("all spaces", peer, {"areas": means[0]}, {"areas": means[1]}))
    return found


def _row(case: str, peer: str, ours: Played, theirs: Played) -> dict[str, Any]:
    mine, other = statistics.mean(ours["areas"]), statistics.mean(theirs["areas"])
    return {
        "case": case,
        "metric": f"area under best so far over {BUDGET} evaluations",
        "unit": "fraction of the optimum",
        "ours": round(mine, 5),
        "peer": peer,
        "peer_value": round(other, 5),
        "ratio": round(mine / other, 5),
        "spread": round(statistics.pstdev(ours["areas"]), 5),
    }


def header() -> dict[str, Any]:
    found = {"python": sys.version.split()[0]}
    for package in ("numpy", "xgboost_cpu", "optuna", "kernel_tuner"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    words = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True)
    return {
        "versions": found,
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "command": " ".join(["python", *sys.argv]),
    }


def save(found: dict[str, Any]) -> None:
    found["header"] = header() | {"hardware": found["hardware"]}
    found["rows"] = rows(found["played"])
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(RESULTS)
    (HERE / "README.md").write_text(render(found))


def load() -> dict[str, Any]:
    if RESULTS.exists():
        return dict(json.loads(RESULTS.read_text()))
    return {"header": {}, "hardware": "", "spaces": {}, "played": {}, "rows": []}


def main() -> None:
    chosen = options()
    end = time.monotonic() + chosen.seconds
    found = load()
    for case in CASES:
        if case.name not in chosen.spaces or not case.path.exists():
            continue
        table = Replayed.load(case)
        if found["spaces"].get(case.name, {}).get("digest") != digest(case):
            found["played"][case.name] = {}
        found["spaces"][case.name] = space_facts(table)
        found["hardware"] = table.recording.workload.hardware.key
        for player in chosen.players:
            known = found["played"][case.name].get(player, {})
            if known.get("seeds", 0) >= chosen.seeds and player not in chosen.again:
                continue
            if time.monotonic() > end:
                print("the budget is spent: run again to go on", flush=True)
                return
            result = play(table, player, chosen.seeds)
            found["played"][case.name][player] = result
            save(found)
            shown = f"area {statistics.mean(result['areas']):.4f}, at {result['at']}"
            print(f"{case.name}: {player}: {shown}", flush=True)


if __name__ == "__main__":
    main()
