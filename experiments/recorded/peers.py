"""Our search against Kernel Tuner and Optuna on spaces that others recorded: who finds how much how
soon.

    python experiments/recorded/peers.py FOLDER... [--seeds 20] [--again PLAYER...]

FOLDER holds T4 files, gzipped or not; NOTES.md says which, and where they are from. Resumable:
what results.json holds of the same file is not run again, unless `--again` names the player. Needs
`pip install kernel-tuner` and the extra `optuna`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from players import PLAYERS
from recorded import BUDGET, FIRST, MARKS, Recorded
from table import render

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
TUNED_ON = (
    "convolution-RTX_3090",
    "convolution_milo-A4000",
    "dedispersion_milo-A4000",
    "gemm-RTX_2080_Ti",
)
Played = dict[str, Any]


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folders", nargs="+", type=Path)
    words.add_argument("--seeds", type=int, default=20)
    words.add_argument("--players", nargs="*", default=list(PLAYERS))
    words.add_argument("--again", nargs="*", default=[], help="players whose courses are run anew")
    return words.parse_args()


def play(recorded: Recorded, player: str, seeds: int) -> Played:
    """P in the mean and at marks, the part of it that each seed has, and how long it thought."""
    games = [PLAYERS[player](recorded, seed) for seed in range(seeds)]
    courses = np.array([recorded.course(times) for times, _ in games])
    scores = recorded.score(courses)
    thought = [seconds / max(1, len(times)) for times, seconds in games]
    return {
        "seeds": seeds,
        "p": round(float(scores.mean()), 4),
        "by_seed": [round(float(recorded.score(c[None]).mean()), 4) for c in courses],
        "at": {str(mark): round(float(scores[mark - FIRST]), 4) for mark in MARKS},
        "optimum_at": {
            str(mark): round(float((recorded.optimum / courses[:, mark - 1]).mean()), 4)
            for mark in MARKS
        },
        "milliseconds": round(1e3 * float(np.mean(thought)), 2),
    }


def facts(recorded: Recorded, path: Path) -> dict[str, Any]:
    good = recorded.ranked[np.isfinite(recorded.ranked)]
    return {
        "digest": digest(path),
        "tuned_on": recorded.name in TUNED_ON,
        "decisions": len(recorded.domains),
        "schedules": len(recorded.ranked),
        "failures": len(recorded.ranked) - len(good),
        "median": round(float(np.median(good) / good[0]), 2),
        "within5": int((good < 1.05 * good[0]).sum()),
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def header() -> dict[str, Any]:
    words = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True)
    packages = ("numpy", "xgboost_cpu", "optuna", "kernel_tuner")
    return {
        "hardware": f"{processor()}, one thread",
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "command": "python experiments/recorded/peers.py FOLDER... " + shown_options(),
        "evaluations": BUDGET,
    }


def shown_options() -> str:
    """What was asked for on the command line, without the folders."""
    start = next((n for n, word in enumerate(sys.argv) if word.startswith("--")), len(sys.argv))
    return " ".join(sys.argv[start:])


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(": ")[1] for x in lines if x.startswith("model name")), "unknown")


def save(found: dict[str, Any]) -> None:
    found["header"] = header()
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(RESULTS)
    (HERE / "README.md").write_text(render(found))


def main() -> None:
    chosen = options()
    found: dict[str, Any] = {"header": {}, "spaces": {}, "played": {}}
    if RESULTS.exists():
        found = json.loads(RESULTS.read_text())
    paths = [p for folder in chosen.folders for p in sorted(folder.glob("*.json*"))]
    for player in chosen.players:
        for path in paths:
            recorded = Recorded.load(path)
            if found["spaces"].get(recorded.name, {}).get("digest") != digest(path):
                found["played"][recorded.name] = {}
            found["spaces"][recorded.name] = facts(recorded, path)
            known = found["played"][recorded.name].get(player, {})
            if known.get("seeds", 0) >= chosen.seeds and player not in chosen.again:
                continue
            result = play(recorded, player, chosen.seeds)
            found["played"][recorded.name][player] = result
            save(found)
            shown = f"P {result['p']:.3f}, {result['milliseconds']} ms a proposal"
            print(f"{recorded.name}: {player}: {shown}", flush=True)


if __name__ == "__main__":
    main()
