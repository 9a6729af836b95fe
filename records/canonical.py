"""Canonical JSON and the content hashes made of it. Knows nothing of what the values mean."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from records.errors import InvalidRecord


def canonical_json(value: Any) -> str:
    """One text for one value: sorted names, no spaces, ASCII, no NaN; raises ValueError."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def content_key(text: str) -> str:
    """The SHA-256 of a text, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_object(field: str, text: str) -> str:
    """Rewrite the JSON object in `text` canonically; `field` names it in the refusal."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return canonical_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRecord(f"{field} is not canonical JSON: {error}; pass a JSON text") from None
    raise InvalidRecord(f"{field} must be a JSON object, not {type(value).__name__}")
