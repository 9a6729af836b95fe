"""Adds to overlap.json what a peer took that runs in a process of its own.

    python experiments/h200/apart.py LINES --peer FlashAttention-3

Each line of LINES is a JSON object of one timing: `case` ("fwd b4 h16 s4096 d128 causal ..."), `us`
and `err`, of graphs over operand sets as ours are. A case timed several times, before and after
ours, counts with its median. Rows say that they were measured apart.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FORM = re.compile(r"fwd b(\d+) h(\d+) s(\d+) d(\d+) (causal|full) float8_e4m3fn")


def timed(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Timings by the name that the case has here."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        one = json.loads(line)
        said = FORM.fullmatch(one["case"])
        if said is not None:
            b, heads, length, d, kind = said.groups()
            causal = " causal" if kind == "causal" else ""
            found.setdefault(f"attention {b}x{heads}x{length}x{d}{causal} e4m3", []).append(one)
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("lines", type=Path)
    words.add_argument("--peer", required=True)
    words.add_argument("--out", type=Path, default=HERE / "overlap.json")
    given = words.parse_args()
    told = json.loads(given.out.read_text())
    rows = [row for row in told["rows"] if not (row.get("apart") and row["peer"] == given.peer)]
    for case, timings in timed(given.lines).items():
        ours = next(row for row in rows if row["case"] == case and row["metric"] == "time")
        value = statistics.median(one["us"] for one in timings)
        rows.append({
            "case": case, "metric": "time", "unit": "us", "ours": ours["ours"],
            "peer": given.peer, "peer_value": value, "ratio": value / ours["ours"],
            "spread": ours["spread"], "apart": [one["us"] for one in timings],
            "error": ours["error"], "peer_error": statistics.median(o["err"] for o in timings),
            "trials": ours["trials"], "schedule": ours["schedule"], "counted": ours["counted"],
            "commit": ours["commit"], "command": ours["command"],
        })  # fmt: skip
        print(f"{case}: {value / ours['ours']:.3f}")
    told["rows"] = rows
    given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
