"""tilewright doctor: what this machine and install offer, each with a verdict and what to do."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from explorer.cli import EXIT_DONE, EXIT_TARGET
from explorer.cli.app import Format, OutputFormat, Records, app, print_json

GOOD, NOTE, BAD = "ok", "note", "bad"
_NEEDED = ("numpy", "networkx", "llvmlite", "xgboost", "SQLAlchemy")


@dataclass(frozen=True, slots=True)
class Finding:
    """`verdict`: ok, note (something optional is missing) or bad (kernels cannot be tuned)."""

    what: str
    verdict: str
    found: str
    advice: str = ""


@app.command()
def doctor(records: Records = None, form: OutputFormat = Format.text) -> int:
    """Examine the machine and the install; exit code 6 if nothing can be tuned here."""
    findings = list(_examine(records))
    if form is Format.json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            advice = f"; {finding.advice}" if finding.advice else ""
            print(f"{finding.verdict:4}  {finding.what}: {finding.found}{advice}")
    return EXIT_TARGET if any(f.verdict == BAD for f in findings) else EXIT_DONE


def _examine(records: str | None) -> Iterator[Finding]:
    yield Finding("python", GOOD, f"{platform.python_version()} at {sys.executable}")
    for name in _NEEDED:
        yield _package(name)
    checks: tuple[Callable[[], Finding], ...] = (_cpu, _workers, _linker, _cuda, _cache)
    for check in checks:
        yield check()
    yield _store(records)


def _package(name: str) -> Finding:
    try:
        return Finding(name, GOOD, version(name))
    except PackageNotFoundError:
        return Finding(name, BAD, "not installed", f"pip install {name}")


def _cpu() -> Finding:
    from ir.errors import MissingTarget
    from ir.target import get_backend

    try:
        hardware = get_backend("cpu").hardware()
    except MissingTarget as error:
        return Finding("cpu target", BAD, str(error))
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{' '.join(hardware.isa)}; {hardware.threads} threads on {count} processors"
    if "avx512f" not in hardware.isa and "avx2" not in hardware.isa:
        return Finding("cpu target", NOTE, found, "without AVX2 kernels will be slow")
    return Finding("cpu target", GOOD, found)


def _workers() -> Finding:
    """A kernel compiled and run in a worker process, the clock read there."""
    import numpy as np

    from explorer.errors import WorkerError
    from explorer.job import run_schedule
    from explorer.workload import Workload
    from ir.errors import TilewrightError

    workload = Workload.of("row_sum", {"m": "64", "n": "64"}, "cpu", None)
    space = workload.space(None)
    try:
        first = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
        outcome = run_schedule(workload, first)
    except (TilewrightError, WorkerError, OSError) as error:
        return Finding("worker", BAD, str(error))
    if not outcome.ok:
        return Finding("worker", BAD, f"a small kernel ended as {outcome.status}: {outcome.detail}")
    clock = f", clock {outcome.clock_ghz} GHz" if outcome.clock_ghz else ""
    return Finding("worker", GOOD, f"compiled, ran and checked a small kernel{clock}")


def _linker() -> Finding:
    from explorer.exporter import find_linker

    found = find_linker()
    if found is None:
        advice = "exports come without a shared library; install gcc or clang for one"
        return Finding("linker", NOTE, "none", advice)
    return Finding("linker", GOOD, found)


def _cuda() -> Finding:
    """Asks the driver for the device; starts no context."""
    from ir.errors import MissingTarget
    from ir.target import get_backend

    missing = [name for name in ("cupy", "cuda") if find_spec(name) is None]
    try:
        hardware = get_backend("cuda").hardware()
    except MissingTarget as error:
        return Finding("cuda", NOTE, "no GPU to tune for", str(error))
    if missing:
        advice = "install the extra: pip install 'tilewright[cuda13]' (or cuda12)"
        return Finding("cuda", NOTE, f"{hardware.name}, without {', '.join(missing)}", advice)
    return Finding("cuda", GOOD, f"{hardware.name}, {', '.join(hardware.isa)}")


def _cache() -> Finding:
    from explorer.settings import cache_dir

    folder = cache_dir()
    files = list(folder.rglob("*.o")) if folder.exists() else []
    size = sum(path.stat().st_size for path in files) / 1e6
    if not _writable(folder):
        advice = "set TILEWRIGHT_CACHE to a folder that can be written"
        return Finding("cache", BAD, f"{folder} cannot be written", advice)
    return Finding("cache", GOOD, f"{folder}: {len(files)} kernels, {size:.1f} MB")


def _store(records: str | None) -> Finding:
    from explorer.recall import open_store
    from explorer.settings import records_location
    from records.errors import StoreError

    where = records if records is not None else records_location()
    if "://" not in where and not Path(where).exists():
        good = _writable(Path(where).parent)
        verdict, found = (GOOD, "not made yet") if good else (BAD, "cannot be made there")
        return Finding("records", verdict, f"{where}: {found}")
    try:
        with open_store(where) as store:
            return Finding("records", GOOD, f"{store.location}: {store.count()} trials")
    except StoreError as error:
        return Finding("records", BAD, str(error), "`tilewright db check` says more")


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the first of its parents that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)
