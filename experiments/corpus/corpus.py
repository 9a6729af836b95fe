"""Every operator of the library at an extent of a real model: what a short search finds.

    python experiments/corpus/corpus.py --target cuda [--seconds 10] [--only TEXT ...] [--part 0/4]

One search for each operator, in a process of its own (`--inside`), so that what one does to a
device ends with it. Tells kernels launched, bytes of workspace, the time, the bound of the machine
over it, trials, and how those ended that were not right. Writes corpus-TARGET.json after each
operator and corpus-TARGET.md at the end; operators that are there already are kept unless --again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from ir.catalogue import SMALL, families, settings_of  # noqa: E402

Row = dict[str, Any]
GRACE = 60.0  # seconds beyond its search that one operator may take


def cases(small: bool) -> list[tuple[str, str, dict[str, object]]]:
    """(operator, setting, arguments): the first setting of a real model, or the small one."""
    found = []
    for family in families():
        for operator in family.operators:
            settings = settings_of(operator)
            wanted = [key for key in settings if (key == SMALL) == small] or list(settings)
            if wanted:
                found.append((operator.name, wanted[0], dict(settings[wanted[0]])))
    return found


def searched(name: str, arguments: dict[str, object], target: str, seconds: float) -> Row:
    """What one search found; for the process of one operator."""
    from explorer.bound import Bound
    from explorer.job import tune
    from explorer.peaks import stated_peaks
    from explorer.workload import Workload
    from ir.target import get_backend

    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        found = tune(
            name, arguments, target=target, seconds=seconds, store=Path(folder) / "records.db",
            baseline=False,
        )  # fmt: skip
        took = time.monotonic() - began
    workload = Workload.of(name, arguments, target)
    kernel = workload.kernel(found.best)
    facts = {**dict(workload.hardware.facts)}
    facts |= stated_peaks(get_backend(target), workload.hardware)
    least = Bound.of(workload.program, facts).seconds
    texts = dict(kernel.texts)
    launches = len(json.loads(texts["launch"])["kernels"]) if "launch" in texts else 1
    return {
        "seconds": found.seconds, "bound": least, "share": least / found.seconds if least else None,
        "kernels": launches, "trials": found.trials, "outcomes": dict(found.outcomes),
        "workspace": sum(a.bytes for a in kernel.arguments if a.role == "workspace"),
        "flops": workload.program.flops, "bytes": workload.program.bytes, "took": round(took, 1),
        "schedule": found.best.to_json(),
    }  # fmt: skip


def apart(name: str, arguments: dict[str, object], target: str, seconds: float) -> Row:
    """`searched` in a process of its own; how it ended, if without an answer."""
    words = [sys.executable, __file__, "--inside", name, json.dumps(arguments)]
    words += ["--target", target, "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=seconds + GRACE, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no end within {seconds + GRACE:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1][:300]}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def page(found: dict[str, Any]) -> str:
    lines = [
        "# Every operator at real extents", "",
        f"{found['hardware']}, {found['versions']}, {found['date']}; `{found['command']}`.", "",
        "The bound is the least time that the machine's stated rates and the bytes and products "
        "that no kernel can leave out allow (none where these are not known); its share of the "
        "time found is what a perfect kernel would have left to gain at most.", "",
        "| operator | setting | time, ms | bound, ms | share | kernels | workspace, MB | trials |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, row in found["rows"].items():
        if "failed" in row:
            lines.append(f"| {name} | {row['setting']} | {row['failed']} | | | | | |")
            continue
        share = f"{row['share']:.3f}" if row["share"] else ""
        lines.append(
            f"| {name} | {row['setting']} | {row['seconds'] * 1e3:.4f} | {row['bound'] * 1e3:.4f} "
            f"| {share} | {row['kernels']} | {row['workspace'] / 1e6:.1f} | {row['trials']} |"
        )
    return "\n".join([*lines, ""])


def hardware(target: str) -> dict[str, str]:
    from importlib.metadata import version

    from ir.target import get_backend

    found = get_backend(target).hardware()
    libraries = [f"numpy {version('numpy')}", f"Python {platform.python_version()}"]
    return {
        "hardware": f"{found.name}, {os.cpu_count()} processors",
        "versions": ", ".join(libraries),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python " + " ".join(["experiments/corpus/corpus.py", *sys.argv[1:]]),
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--target", default="cpu")
    words.add_argument("--seconds", type=float, default=10.0)
    words.add_argument("--only", nargs="*", default=[], help="operators whose name has a text")
    words.add_argument("--part", default="0/1", help="which of how many equal parts")
    words.add_argument("--small", action="store_true", help="small extents")
    words.add_argument("--budget", type=float, default=float("inf"), help="seconds in all")
    words.add_argument("--again", action="store_true")
    words.add_argument("--out", type=Path, default=HERE)
    words.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.inside:
        name, arguments = given.inside
        print(json.dumps(searched(name, json.loads(arguments), given.target, given.seconds)))
        return
    number, parts = map(int, given.part.split("/"))
    path = given.out / f"corpus-{given.target}{f'-{number}' if parts > 1 else ''}.json"
    rows: dict[str, Row] = json.loads(path.read_text())["rows"] if path.exists() else {}
    found = hardware(given.target) | {"rows": rows}
    until = time.monotonic() + given.budget
    for name, setting, arguments in cases(given.small)[number::parts]:
        known = name in rows and not given.again
        if known or (given.only and not any(text in name for text in given.only)):
            continue
        if time.monotonic() > until:
            break
        row = apart(name, arguments, given.target, given.seconds)
        rows[name] = {"setting": setting, "arguments": arguments} | row
        said = row.get("failed") or f"{row['seconds'] * 1e3:.4f} ms, {row['trials']} trials"
        print(f"{name} {setting}: {said}", flush=True)
        given.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    (path.with_suffix(".md")).write_text(page(found))


if __name__ == "__main__":
    main()
