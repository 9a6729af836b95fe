"""Result files of KTT, the Kernel Tuning Toolkit, as it writes them in JSON (not in its T4 form).

Every result names its kernel; durations are in the unit that the metadata tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from records.errors import InvalidRecord
from records.foreign import Told, Trial, is_number, named, seconds_in
from records.refused import damaged

_STATUS = {
    "Ok": "ok",
    "ComputationFailed": "crash",
    "ValidationFailed": "wrong_result",
    "CompilationFailed": "compile_error",
    "DeviceLimitsExceeded": "illegal",
}


def tell(path: Path, data: dict[str, Any]) -> Told:
    """What a file holds; raises DamagedExport."""
    metadata, results = data.get("Metadata"), data["Results"]
    if not isinstance(results, list):
        raise damaged(path, "Results", "it is no list of results")
    try:
        unit = seconds_in(named(metadata, "TimeUnit"))
    except InvalidRecord as error:
        raise damaged(path, "Metadata", f"TimeUnit: {error}") from None
    created = named(metadata, "Timestamp")
    return Told(
        form="ktt",
        version=named(metadata, "KttVersion") or "0",
        results=results,
        read=lambda result: _trial(result, unit, created),
        card=named(metadata, "Device"),
    )


def _trial(result: Any, unit: float, created: str) -> Trial:
    if not isinstance(result, Mapping):
        raise InvalidRecord("it is not a result")
    word, duration = str(result.get("Status")), result.get("TotalDuration")
    if word not in _STATUS:
        raise InvalidRecord(f"status {word[:40]!r} is not known here")
    right = _STATUS[word] == "ok"
    if right and not is_number(duration):
        raise InvalidRecord("it is Ok, but has no TotalDuration")
    compiled = result.get("CompilationOverhead")
    return Trial(
        _configuration(result.get("Configuration")),
        _STATUS[word],
        [duration * unit] if right and is_number(duration) else (),
        compiled * unit if is_number(compiled) else None,
        str(result.get("Timestamp") or created),
        "" if right else word,
        named(result, "KernelName"),
    )


def _configuration(pairs: Any) -> dict[str, Any]:
    found = pairs if isinstance(pairs, list) else [pairs]
    if not all(isinstance(p, Mapping) and "Name" in p and "Value" in p for p in found):
        raise InvalidRecord("it lacks its configuration, or a name or value of it")
    return {str(pair["Name"]): pair["Value"] for pair in found}
