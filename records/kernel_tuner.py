"""Cache files of Kernel Tuner (schema 1.0 and 1.1, and the older ones without a number).

A cache tells its kernel, card, problem size and parameters, so that one that has grown is of the
workload that it was of before. Its times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from records.canonical import canonical_json
from records.errors import InvalidRecord
from records.foreign import Told, Trial, is_number, named, numbers
from records.refused import damaged

_UNIT = 1e-3
_FAILED = 1e20  # the time of failures in caches without a number
_STATUS = {
    "InvalidConfig": "illegal",
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "crash",
}


def tell(path: Path, data: dict[str, Any]) -> Told:
    """What a cache holds; raises DamagedExport."""
    cache, names = data["cache"], data.get("tune_params_keys")
    if not isinstance(cache, Mapping):
        raise damaged(path, "cache", "it holds no configurations")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise damaged(path, "tune_params_keys", "it does not say which parameters were tuned")
    size = data.get("problem_size")
    kernel, card = named(data, "kernel_name"), named(data, "device_name")
    return Told(
        form="kernel-tuner",
        version=named(data, "schema_version") or "0",
        results=list(cache.values()),
        read=lambda result: _trial(result, names),
        kernel=kernel,
        card=card,
        extents=() if size is None else (("size", _size(size)),),
        space=_space(path, names, data.get("tune_params")),
        whole=bool(kernel and card and size is not None),
    )


def _trial(result: Any, names: list[str]) -> Trial:
    if not isinstance(result, Mapping):
        raise InvalidRecord("it is not a configuration")
    missing = [name for name in names if name not in result]
    if missing:
        raise InvalidRecord(f"it lacks its parameter {missing[0]!r}")
    time = result.get("time")
    failed = isinstance(time, str) or time == _FAILED
    compiled = result.get("compile_time")
    word = str(time) if failed else ""
    status = _STATUS.get(word, "crash" if time == _FAILED else "") if failed else "ok"
    if not status:
        raise InvalidRecord(f"time {word[:40]!r} is no number, and no failure that is known here")
    samples = numbers(result.get("times")) or ([time] if is_number(time) else [])
    if status == "ok" and not samples:
        raise InvalidRecord("it is correct, but no time of it is told")
    return Trial(
        {name: result[name] for name in names},
        status,
        () if failed else [value * _UNIT for value in samples],
        compiled * _UNIT if is_number(compiled) else None,
        str(result.get("timestamp")),
        word,
    )


def _size(size: Any) -> str:
    """`4096x4096`, as people write it."""
    return "x".join(map(str, size)) if isinstance(size, list) else str(size)


def _space(path: Path, names: list[str], domains: Any) -> str:
    """What was tuned, as a text that is the same for all caches of one space."""
    try:
        return canonical_json([names, domains])
    except (ValueError, RecursionError):
        raise damaged(path, "tune_params", "it has values that no file keeps") from None
