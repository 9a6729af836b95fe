"""Arguments that no operator of the library can do with, in words with their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from ir import UsageError, load_operator

_HEADS: dict[str, Any] = {"b": 1, "heads": 4, "sq": 5, "d": 4}
_CACHE: dict[str, Any] = {"b": 1, "heads": 4, "d": 4, "kv_heads": 3}
_LISTED: dict[str, Any] = {"b": 1, "heads": 1, "sq": 8, "sk": 9, "d": 4, "rows": 3, "keys": 3}
_NARROW: dict[str, Any] = {"m": 3, "n": 4, "k": 48}


@pytest.mark.parametrize(("name", "arguments", "words"), [
    ("mlp", {"m": 3, "k": 4, "hidden": 5, "activation": "swish"}, "mlp: activation='swish'"),
    ("block_scaled_matmul", _NARROW | {"block": 32}, "n=4, k=48: no multiples of block=32"),
    ("w4a16_matmul", _NARROW, "k=48: no multiple of group=128"),
    ("w4a16_matmul", _NARROW | {"group": 3}, "group=3, an even number"),
    ("sink_attention", _HEADS | {"kv_heads": 3}, "heads=4 is no multiple of kv_heads=3"),
    ("softcap_attention", _HEADS | {"window": -2}, "softcap_attention: window=-2"),
    ("softcap_attention", _HEADS | {"cap": 0.0}, "cap=0.0"),
    ("attention_lse", _HEADS | {"sk": 3, "causal": True}, "sq=5 > sk=3"),
    ("decode_attention", _CACHE | {"sk": 9}, "heads=4 is no multiple of kv_heads=3"),
    ("rotary", {"b": 1, "heads": 1, "s": 3, "d": 5}, "d=5: coordinates are turned in pairs"),
    ("rotary_attention", {"b": 1, "heads": 4, "s": 3, "d": 6, "kv_heads": 3}, "no multiple"),
    ("block_sparse_attention", _LISTED | {"listed": 2}, "sq=8, sk=9: no multiples of rows=3"),
    ("mla_decode", {"b": 1, "heads": 2, "sk": 3, "sq": 4}, "sq=4 > sk=3"),
    ("paged_attention", _CACHE | {"kv_heads": 2, "pages": 1, "page": 4, "slots": 3, "sq": 5},
     "sq=5 > sk=4 keys"),
])  # fmt: skip
def test_impossible_arguments(name: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_operator(name).build(**arguments)
