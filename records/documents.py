"""JSON documents of results, ours and other tuners': read whole, unpacked, told apart by content.

Knows by which names a form is recognised; not what a form means.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from records.packed import Unpackable, unpacked
from records.refused import damaged, unreadable

LARGEST = 256 << 20  # bytes of a document, which is held in memory
ENDINGS = (".json", ".json.gz", ".json.xz")
# Of each form the entries by which it is known, and how people call it.
KNOWN_BY = {
    "t4": (("results",), "T4 results"),
    "kernel-tuner": (("cache",), "a cache of Kernel Tuner"),
    "ktt": (("Results",), "results of KTT"),
}
_OPEN = "}}"  # what a cache still lacks whose tuning goes on, or was killed


def is_document(path: Path) -> bool:
    """Whether a file is called like one."""
    return path.name.lower().endswith(ENDINGS)


def load(path: Path) -> dict[str, Any]:
    """The object in a file, packed or not; raises DamagedExport, StoreUnavailable."""
    content = _content(path)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        data = _of_open_cache(content)
        if data is None:
            raise damaged(path, "the whole of it", _no_json(content, error)) from None
    if not isinstance(data, dict):
        raise damaged(path, "the whole of it", f"it lacks results: it is a {_kind(data)} of JSON")
    return data


def form_in(path: Path, data: dict[str, Any], wanted: str | None = None) -> str:
    """Which form a document has; raises DamagedExport for none, several, or another one."""
    found = [form for form, (names, _) in KNOWN_BY.items() if all(name in data for name in names)]
    if not found:
        what = ", ".join(f"{names[0]!r} ({words})" for names, words in KNOWN_BY.values())
        reason = f"it lacks results: nothing in it is called {what}"
        raise damaged(path, "the whole of it", reason)
    if len(found) > 1:
        mixed = " and ".join(KNOWN_BY[form][1] for form in found)
        raise damaged(path, "the whole of it", f"it mixes {mixed}: give each a file of its own")
    if wanted is not None and wanted != found[0]:
        reason = f"it is {KNOWN_BY[found[0]][1]}, not {KNOWN_BY[wanted][1]}"
        raise damaged(path, "the whole of it", reason)
    return found[0]


def _content(path: Path) -> bytes:
    try:
        if path.suffix.lower() in (".gz", ".xz"):
            content = b"".join(unpacked(path, LARGEST))
        else:
            with open(path, "rb") as stream:
                content = stream.read(LARGEST + 1)
    except Unpackable as error:
        raise damaged(path, "the whole of it", f"it cannot be unpacked ({error})") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) > LARGEST:
        raise damaged(path, "the whole of it", f"larger than {LARGEST >> 20} MiB")
    return content


def _of_open_cache(content: bytes) -> dict[str, Any] | None:
    """Kernel Tuner closes a cache only when it is done: what one in use holds, if it is one."""
    try:
        data = json.loads(content.rstrip().removesuffix(b",") + _OPEN.encode())
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and "cache" in data else None


def _no_json(content: bytes, error: Exception) -> str:
    start = content[:200].lstrip()
    if start.startswith(b"<"):
        return "it is not JSON but XML: have the tuner write JSON"
    if start.startswith((b"\x1f\x8b", b"\xfd7zXZ")):
        return "it is not JSON but packed: let its name end in .json.gz or .json.xz"
    return f"it is not JSON ({error})"


def _kind(data: object) -> str:
    return "list" if isinstance(data, list) else "value"
