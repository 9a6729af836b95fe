"""A table of searches alone, beside the times of an earlier table and its bounds.

python experiments/corpus/searched.py FOLDER     # of FOLDER/corpus-cuda.json: FOLDER/README.md
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    folder = Path(sys.argv[1])
    found = json.loads((folder / "corpus-cuda.json").read_text())
    before = json.loads((HERE / "corpus-cuda.json").read_text())["rows"]
    lines, shares, ratios = [], dict[str, float](), dict[str, float]()
    for name, row in found["rows"].items():
        old: dict[str, Any] = before.get(name, {})
        ours, then = row["found_seconds"], old.get("seconds")
        bound = old["share"] * then if then and old.get("share") else None
        if bound:
            shares[name] = bound / ours
        if then:
            ratios[name] = then / ours
        peer = old["ratio"] * then / ours if then and old.get("ratio") else None
        words = [
            name, row["setting"], f"{ours * 1e3:.4f}", f"{then * 1e3:.4f}" if then else "",
            f"{then / ours:.2f}" if then else "", f"{shares[name]:.3f}" if bound else "",
            f"{peer:.2f}" if peer else "", str(row["trials"]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(words)} |")
    head = found["header"]
    less = sorted(name for name, share in shares.items() if share < 0.1)
    faster = sum(ratio > 1.05 for ratio in ratios.values())
    slower = sum(ratio < 1 / 1.05 for ratio in ratios.values())
    median = statistics.median(shares.values())
    mean = statistics.geometric_mean(ratios.values())
    text = [
        "# Every operator, searched", "",
        f"{head['hardware']}, {head['versions']}, {head['date']}.", "", head["note"], "",
        f"- {len(lines)} operators, each with a right kernel.",
        f"- Share of the bound: {median:.3f} in the median of {len(shares)}; {len(less)} are below "
        f"0.1: {', '.join(less)}.",
        f"- Over the times of [corpus-cuda.md](../corpus-cuda.md): {mean:.2f} in the mean; "
        f"{faster} are faster by more than 5 %, {slower} slower.", "",
        "| operator | setting | ms | before, ms | before / now | share of the bound "
        "| peer as it was / now | trials |",
        "|---|---|---|---|---|---|---|---|", *lines, "",
    ]  # fmt: skip
    (folder / "README.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
