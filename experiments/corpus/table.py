"""The page of a corpus: a table by family, and what it comes to. Knows rows alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def said(name: str, row: Row) -> str:
    """A row in a line, for people who wait."""
    if "seconds" not in row:
        found = _trouble(row) or f"{row.get('trials', 0)} trials"
        return f"{name} {row.get('setting', '')}: {found}"
    words = f"{name} {row['setting']}: {row['seconds'] * 1e3:.4f} ms"
    if "peer_seconds" in row:
        words += f", {row['peer']} {row['peer_seconds'] * 1e3:.4f} ms, ratio {row['ratio']:.2f}"
    return words + (f" [{_trouble(row)}]" if _trouble(row) else "")


def _trouble(row: Row) -> str:
    names = ("no_schedule", "failed", "peer_failed", "stopped")
    return "; ".join(str(row[name]) for name in names if row.get(name))


def page(title: str, head: Row, rows: Mapping[str, Row]) -> str:
    """Markdown."""
    lines = [
        f"# {title}", "",
        f"{head.get('hardware', 'not timed yet')}, {head.get('versions', '')}, "
        f"{head.get('date', '')}.", "", *_summary(rows), "",
        *([head["note"], ""] if head.get("note") else []),
        "The bound is the roofline: the operations that the program states over the machine's rate "
        "for their types, or all tensors' bytes over its bandwidth, whichever takes longer; a mask "
        "or a choice of rows may need less. The share is the bound over our time. The ratio is the "
        "peer's time over ours, both taken in turns: above 1 ours is faster.", "",
        "| operator | setting | ms | bound, ms | share | kernels | workspace, MB | trials "
        "| peer | peer, ms | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    family = None
    for name, row in sorted(rows.items(), key=lambda pair: str(pair[1].get("family"))):
        if row.get("family") != family:
            family = row.get("family")
            lines.append(f"| **{family}** |" + " |" * 10)
        lines.append(_line(name, row))
    return "\n".join([*lines, ""])


def _line(name: str, row: Row) -> str:
    trouble = _trouble(row).replace("|", "/")
    if "seconds" not in row:
        why = trouble or ("not searched" if "schedule" not in row else "not timed")
        if "schedule" in row:
            why += f"; {row['found_seconds'] * 1e3:.4f} in its search, beside others"
            why += f"; {row['trials']} trials"
            if row.get("first_trial"):
                why += f", the first after {row['first_trial']} s"
        return f"| {name} | {row['setting']} | {why}" + " |" * 9
    share = f"{row['share']:.3f}" if row.get("share") else ""
    bound = f"{row['bound'] * 1e3:.4f}" if row.get("bound") else ""
    peer = (row.get("peer", ""), "", "")
    if "peer_seconds" in row:
        peer = (row["peer"], f"{row['peer_seconds'] * 1e3:.4f}", f"{row['ratio']:.2f}")
    elif trouble:
        peer = (trouble, "", "")
    cells = (
        name, row["setting"], f"{row['seconds'] * 1e3:.4f}", bound, share, row["kernels"],
        f"{row['workspace'] / 1e6:.1f}", row["trials"], *peer,
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _summary(rows: Mapping[str, Row]) -> list[str]:
    right = [row for row in rows.values() if "seconds" in row]
    shares = [row["share"] for row in right if row.get("share")]
    ratios = [row["ratio"] for row in right if row.get("ratio")]
    found = [f"- {len(right)} of {len(rows)} operators with a right kernel that was timed."]
    if shares:
        found.append(f"- Share of the bound: {statistics.median(shares):.3f} in the median.")
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        ahead = sum(ratio >= 1 for ratio in ratios)
        found.append(
            f"- {len(ratios)} with a peer; the geometric mean of the ratios is {mean:.2f}, "
            f"{ahead} of them are 1 or more."
        )
    several = sum(row["kernels"] > 1 for row in right)
    found.append(f"- {several} are more than one kernel, the others one.")
    return found
