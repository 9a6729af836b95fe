"""Canonical JSON and the content hashes made of it. Knows nothing of what the values mean."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from records.errors import InvalidRecord

_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: Any) -> str:
    """One text for one value: sorted names, no spaces, ASCII, no NaN; raises ValueError."""
    return _ENCODER.encode(value)


def content_key(text: str) -> str:
    """The SHA-256 of a text, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_object(field: str, text: str) -> str:
    """Rewrite the JSON object in `text` canonically; `field` names it in the refusal."""
    return _canonical_object(field, text) if isinstance(text, str) else _rewritten(field, text)


def _rewritten(field: str, text: str) -> str:
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return canonical_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRecord(f"{field} is not canonical JSON: {error}; pass a JSON text") from None
    raise InvalidRecord(f"{field} must be a JSON object, not {type(value).__name__}")


# Trials of one search share most of their texts.
_canonical_object = lru_cache(maxsize=256)(_rewritten)
