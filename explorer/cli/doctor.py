"""tilewright doctor: what this machine and install offer, each with a verdict and what to do.

The code it ends with: 6 if a target that was asked for cannot be used, or, if none was asked for,
if no target can be used at all; 8 if the store cannot be used; otherwise 0.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import EXIT_DONE, EXIT_STORE, EXIT_TARGET
from explorer.cli.app import Format, OutputFormat, Records, app, examples, print_json

GOOD, NOTE, BAD = "ok", "note", "bad"
ALL = "*"
_NEEDED = {
    "numpy": ALL, "networkx": ALL, "llvmlite": "cpu", "xgboost-cpu": ALL, "SQLAlchemy": ALL,
}  # fmt: skip
_SAME = {"xgboost-cpu": "xgboost"}  # distributions that bring one module: either will do


@dataclass(frozen=True, slots=True)
class Finding:
    """`verdict`: ok, note (something optional is missing) or bad (kernels cannot be tuned).

    `targets` are those that cannot be used because of it; "*" stands for all of them.
    """

    what: str
    verdict: str
    found: str
    advice: str = ""
    targets: tuple[str, ...] = ()


Asked = Annotated[
    list[str] | None, typer.Option("--target", help="a target that must be usable; may be repeated")
]


@app.command(
    epilog=examples(
        "tilewright doctor",
        "tilewright doctor --target cpu --format json",
    ),
)
def doctor(target: Asked = None, records: Records = None, form: OutputFormat = Format.text) -> int:
    """Examine the machine and the install.

    Ends with code 6 if a target that is asked for cannot be used (if none is, when no target can
    be), with 8 if the record store cannot be used.
    """
    from ir.target import get_backend, target_names

    for name in target or ():
        get_backend(name)  # a misspelt name is a usage error
    asked = set(target or ())
    findings = [
        replace(finding, verdict=BAD) if asked & set(finding.targets) else finding
        for finding in _examine(records, target or ())
    ]
    if form is Format.json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            advice = f"; {finding.advice}" if finding.advice else ""
            print(f"{finding.verdict:4}  {finding.what}: {finding.found}{advice}")
    return _code(findings, target or (), target_names())


def _code(findings: Sequence[Finding], asked: Sequence[str], known: Sequence[str]) -> int:
    broken = {name for finding in findings for name in finding.targets}
    if ALL in broken or broken & set(asked) or (not asked and broken >= set(known)):
        return EXIT_TARGET
    return (
        EXIT_STORE if any(f.what == "records" and f.verdict == BAD for f in findings) else EXIT_DONE
    )


def _examine(records: str | None, asked: Sequence[str]) -> Iterator[Finding]:
    yield Finding("python", GOOD, f"{platform.python_version()} at {sys.executable}")
    for name, owner in _NEEDED.items():
        yield _package(name, owner)
    yield from _models()
    for check in (_cpu, _workers, _linker, _report, _cuda, _nvrtc, _cache):
        yield check()
    yield from _others(asked)
    yield _store(records)


def _others(asked: Sequence[str]) -> Iterator[Finding]:
    """Targets of other packages that are asked for: whether they find their hardware."""
    from ir.errors import MissingTarget
    from ir.target import get_backend

    for name in asked:
        if name in ("cpu", "cuda"):
            continue
        try:
            hardware = get_backend(name).hardware()
            yield Finding(f"{name} target", GOOD, hardware.name)
        except MissingTarget as error:
            yield Finding(f"{name} target", BAD, str(error), targets=(name,))


def _package(name: str, owner: str) -> Finding:
    other = _SAME.get(name, name)
    found = {word: said for word in (name, other) if (said := _version(word))}
    if not found:
        return Finding(name, BAD, "not installed", f"pip install {name}", (owner,))
    if len(found) > 1:
        both = f"{name} {found[name]} and {other} {found[other]} write to one folder"
        advice = f"pip uninstall both, then pip install {name}"
        return Finding(name, NOTE, both, advice)
    ((there, told),) = found.items()
    return Finding(there, GOOD, told)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _models() -> Iterator[Finding]:
    """The cost models that come with the package: without them searches begin blind."""
    from costmodel.saved import shipped_model
    from ir.errors import UsageError
    from ir.target import target_names

    advice = "install Tilewright again from its wheel, or name a file with `tune --model`"
    for target in target_names():
        what = f"{target} model"
        try:
            model = shipped_model(target)
        except UsageError as error:
            yield Finding(what, NOTE, str(error), advice)
            continue
        if model is None:
            yield Finding(what, NOTE, "none is installed: searches start without one", advice)
        else:
            yield Finding(what, GOOD, f"of {model.data.get('valid', 'some')} kernels")


def _report() -> Finding:
    found = _version("jinja2")
    if found is None:
        return Finding("jinja2", NOTE, "not installed: no reports", "pip install jinja2")
    return Finding("jinja2", GOOD, found)


def _nvrtc() -> Finding:
    """The compiler of CUDA kernels, which needs no GPU."""
    from explorer.runtime import nvrtc
    from ir.errors import MissingTarget

    try:
        return Finding("NVRTC", GOOD, nvrtc.version())
    except MissingTarget as error:
        return Finding("NVRTC", NOTE, "CUDA kernels cannot be compiled", str(error), ("cuda",))


def _cpu() -> Finding:
    from ir.errors import MissingTarget
    from ir.target import get_backend

    try:
        hardware = get_backend("cpu").hardware()
    except MissingTarget as error:
        return Finding("cpu target", BAD, str(error), targets=("cpu",))
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

    try:
        workload = Workload.of("row_sum", {"m": "64", "n": "64"}, "cpu", None)
        space = workload.space(None)
        first = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
        outcome = run_schedule(workload, first)
    except (TilewrightError, WorkerError, OSError) as error:
        return Finding("worker", BAD, str(error), targets=("cpu",))
    if not outcome.ok:
        said = f"a small kernel ended as {outcome.status}: {outcome.detail}"
        return Finding("worker", BAD, said, targets=("cpu",))
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

    missing = find_spec("cupy") is None
    try:
        hardware = get_backend("cuda").hardware()
    except MissingTarget as error:
        return Finding("cuda", NOTE, "no GPU to tune for", str(error), ("cuda",))
    if missing:
        advice = "install the extra: pip install 'tilewright[cuda13]' (or cuda12)"
        found = f"{hardware.name}, without CuPy"
        return Finding("cuda", NOTE, found, advice, ("cuda",))
    return Finding("cuda", GOOD, f"{hardware.name}, {', '.join(hardware.isa)}")


def _cache() -> Finding:
    from explorer.settings import cache_dir, cache_limit, cache_trouble, shared_cache
    from ir.errors import UsageError

    try:
        folder, limit, shared = cache_dir(), cache_limit() / 1e6, shared_cache()
    except UsageError as error:
        return Finding("cache", BAD, str(error), targets=(ALL,))
    if cache_trouble():
        advice = "kernels are compiled anew each time; set TILEWRIGHT_CACHE to a folder of yours"
        return Finding("cache", NOTE, f"a temporary folder, for {cache_trouble()}", advice)
    sizes = [path.stat().st_size for path in folder.glob("??/*.*") if path.is_file()]
    beside = f"; shared: {shared}" if shared is not None else ""
    kept = f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} of {limit:,.0f} MB"
    return Finding("cache", GOOD, f"{folder}: {kept}{beside}")


def _store(records: str | None) -> Finding:
    from explorer.recall import address_of, open_store
    from records.errors import StoreError

    try:
        where = address_of(records)
        if where.path is not None and not where.there:
            good = _writable(where.path.parent)
            verdict, found = (GOOD, "not made yet") if good else (BAD, "cannot be made there")
            return Finding("records", verdict, f"{where}: {found}")
        with open_store(where) as store:
            return Finding("records", GOOD, f"{store.location}: {store.count()} trials")
    except StoreError as error:
        return Finding("records", BAD, str(error), "`tilewright db check` says more")


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the first of its parents that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)
