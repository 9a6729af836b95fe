"""References of attention: query by query, or matrix by matrix, as the definition has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _heads(x: Inputs) -> tuple[Array, Array, Array]:
    """Q, K and V with an axis for the group of heads that share keys."""
    q = x["Q"] if x["Q"].ndim == 5 else x["Q"][:, :, None]
    return q, x["K"][:, :, None], x["V"][:, :, None]


def _seen(sq: int, sk: int, causal: bool, window: int = 0) -> Array:
    found = np.zeros((sq, sk), bool)
    for query in range(sq):
        last = query + sk - sq
        low = max(0, last - window + 1) if window else 0
        found[query, low : last + 1 if causal else sk] = True
    return found


def _scores(x: Inputs, causal: bool, window: int = 0, change: Any = None) -> Array:
    q, k, _ = _heads(x)
    scores = np.einsum("bhgqd,bhukd->bhgqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores if change is None else change(scores)
    sq, sk = scores.shape[-2:]
    return np.where(_seen(sq, sk, causal, window), scores, -np.inf)


def _plain(x: Inputs, causal: bool = False, window: int = 0, scale: float = 0.0, **_: Any) -> Array:
    d = x["Q"].shape[-1]
    scaled = {**x, "Q": x["Q"] * (scale or d**-0.5) * math.sqrt(d)}
    scores = _scores(scaled, causal, window)
    return (_softmax(scores) @ _heads(x)[2]).reshape(*x["Q"].shape[:-1], -1)


def _lse(x: Inputs, causal: bool = False, **_: Any) -> Mapping[str, Array]:
    total = np.log(np.exp(_scores(x, causal)).sum(-1)).reshape(x["Q"].shape[:-1])
    return {"O": _plain(x, causal), "L": total}


def _backward(x: Inputs, causal: bool = False, **_: Any) -> Mapping[str, Array]:
    q, k, v = _heads(x)
    o, do, lse = (x[name].reshape(*q.shape[:4], -1) for name in ("O", "dO", "L"))
    p = np.exp(_scores(x, causal) - lse)
    dp = do @ np.swapaxes(v, -1, -2)
    ds = p * (dp - (o * do).sum(-1, keepdims=True)) / math.sqrt(q.shape[-1])
    return {
        "dQ": np.asarray(ds @ k).reshape(x["Q"].shape),
        "dK": np.einsum("bhgqk,bhgqd->bhkd", ds, q),
        "dV": np.einsum("bhgqk,bhgqd->bhkd", p, do),
    }


def _sink(x: Inputs, causal: bool = True, window: int = 0, **_: Any) -> Array:
    scores, v = _scores(x, causal, window), _heads(x)[2]
    extra = np.broadcast_to(x["sink"].reshape(scores.shape[1:3])[:, :, None, None],
                            (*scores.shape[:-1], 1))  # fmt: skip
    weights = _softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
    return np.asarray(weights @ v).reshape(x["Q"].shape)


def _softcap(x: Inputs, causal: bool = True, window: int = 0, cap: float = 50.0, **_: Any) -> Array:
    scores = _scores(x, causal, window, lambda s: cap * np.tanh(s / cap))
    return np.asarray(_softmax(scores) @ _heads(x)[2]).reshape(x["Q"].shape)


def _alibi(x: Inputs, causal: bool = True, **_: Any) -> Array:
    def less(scores: Array) -> Array:
        sq, sk = scores.shape[-2:]
        distance = np.abs(np.arange(sk)[None] - np.arange(sk - sq, sk)[:, None])
        slope = x["slope"].reshape(scores.shape[1:3])[:, :, None, None]
        return np.asarray(scores - slope * distance)

    scores = _scores(x, causal, 0, less)
    return np.asarray(_softmax(scores) @ _heads(x)[2]).reshape(x["Q"].shape)


def _documents(x: Inputs, causal: bool = True, **_: Any) -> Array:
    """Each document by itself."""
    q, k, v = _heads(x)
    found = np.zeros(q.shape)
    for b, ids in enumerate(x["document"]):
        for each in np.unique(ids):
            at = ids == each
            scores = q[b][:, :, at] @ np.swapaxes(k[b][:, :, at], -1, -2) / math.sqrt(q.shape[-1])
            inside = _seen(at.sum(), at.sum(), causal)
            found[b][:, :, at] = _softmax(np.where(inside, scores, -np.inf)) @ v[b][:, :, at]
    return found.reshape(x["Q"].shape)


def _words(counter: Array, stream: Array, seed: int) -> Array:
    """Word (counter mod 4) of Philox 4x32-10 at the counter div 4 (Salmon et al., 2011)."""
    mask, key = np.uint64(0xFFFFFFFF), [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    low, high = (np.asarray(part, np.uint64) for part in np.broadcast_arrays(counter, stream))
    word, low = low & np.uint64(3), low >> np.uint64(2)
    x = [low & mask, low >> np.uint64(32), high & mask, high >> np.uint64(32)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [b >> np.uint64(32) ^ x[1] ^ key[0], b & mask,
             a >> np.uint64(32) ^ x[3] ^ key[1], a & mask]  # fmt: skip
        key = [key[0] + np.uint64(0x9E3779B9) & mask, key[1] + np.uint64(0xBB67AE85) & mask]
    return np.choose(word.astype(int), x)


def _dropped(x: Inputs, causal: bool = False, rate: float = 0.1, seed: int = 0, **_: Any) -> Array:
    """Every probability by itself."""
    weights = _softmax(_scores(x, causal))
    row = np.arange(weights[..., 0].size).reshape(weights.shape[:-1])[..., None]
    u = (_words(np.arange(weights.shape[-1]), row, seed) >> np.uint64(8)) / 2.0**24
    kept = np.where(u >= np.float32(rate), weights / (1 - rate), 0.0)
    return np.asarray(kept @ _heads(x)[2]).reshape(x["Q"].shape)


def _turn(x: Array, cos: Array, sin: Array, paired: bool) -> Array:
    """By complex numbers, whose coordinates lie side by side or half a head apart."""
    half = x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if paired else (x[..., :half], x[..., half:])
    turned = (first + 1j * second) * (cos + 1j * sin)
    return np.stack([turned.real, turned.imag], axis=-1 if paired else -2)


def _rotary(x: Inputs, paired: bool = False, **_: Any) -> Array:
    return _turn(x["X"], x["cos"], x["sin"], paired)


def _rotary_attention(x: Inputs, paired: bool = False, causal: bool = True, **_: Any) -> Array:
    q, k = (_turn(x[n], x["cos"], x["sin"], paired).reshape(x[n].shape) for n in ("Q", "K"))
    return _plain({"Q": q, "K": k, "V": x["V"]}, causal)


def _one(query: Array, keys: Array, values: Array, scale: float) -> Array:
    """One query and the keys that it sees."""
    return np.asarray(_softmax(keys @ query * scale) @ values)


def _decode(x: Inputs, d: int, **_: Any) -> Array:
    found = np.zeros(x["Q"].shape)
    for b, h, g in np.ndindex(*found.shape[:3]):
        n = x["length"][b]
        found[b, h, g] = _one(x["Q"][b, h, g], x["K"][b, h, :n], x["V"][b, h, :n], d**-0.5)
    return found


def _paged(x: Inputs, d: int, sq: int = 1, **_: Any) -> Array:
    found = np.zeros(x["Q"].shape)
    for b, h, g, i in np.ndindex(*found.shape[:4]):
        seen = x["length"][b] - (sq - 1 - i)
        k, v = (np.concatenate(x[name][x["table"][b]])[:seen, h] for name in ("pool_k", "pool_v"))
        found[b, h, g, i] = _one(x["Q"][b, h, g, i], k, v, d**-0.5)
    return found


def _ragged(x: Inputs, d: int, longest: int, **_: Any) -> Array:
    found = np.zeros(x["Q"].shape)
    for i, r, h, g in np.ndindex(*found.shape[:4]):
        sequence = x["sequence"][i]
        first = x["first"][sequence]
        seen = min(x["length"][sequence], x["place"][i] + r + 1)
        k, v = (
            np.concatenate([x[name][first:, h], np.zeros((longest, d))])[:seen] for name in "KV"
        )
        found[i, r, h, g] = _one(x["Q"][i, r, h, g], k, v, d**-0.5)
    return found


def _block_sparse(x: Inputs, d: int, **_: Any) -> Array:
    found = np.zeros(x["Q"].shape)
    for b, h, i in np.ndindex(*found.shape[:3]):
        blocks = x["index"][b, h, i, : x["count"][b, h, i]]
        k, v = (np.concatenate(x[name][b, h][blocks]) for name in "KV")
        for r, query in enumerate(x["Q"][b, h, i]):
            found[b, h, i, r] = _one(query, k, v, d**-0.5)
    return found


def _mla_prefill(x: Inputs, heads: int, d: int = 128, rope: int = 64, **_: Any) -> Array:
    shared = np.repeat(x["K_rope"][:, None], heads, axis=1)
    q = np.concatenate([x["Q"], x["Q_rope"]], axis=-1)
    k = np.concatenate([x["K"], shared], axis=-1)
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(d + rope)
    sq, sk = scores.shape[-2:]
    scores = np.where(_seen(sq, sk, True), scores, -np.inf)
    return np.asarray(_softmax(scores) @ x["V"])


def _mla_decode(
    x: Inputs, latent: int = 512, rope: int = 64, sq: int = 1, d: int = 128, **_: Any
) -> Array:
    found = np.zeros(x["Q"].shape)
    for b, i, h in np.ndindex(*found.shape[:3]):
        keys = x["cache"][b, : x["length"][b] - (sq - 1 - i)]
        query = np.concatenate([x["Q"][b, i, h], x["Q_rope"][b, i, h]])
        found[b, i, h] = _one(query, keys, keys[:, :latent], (d + rope) ** -0.5)
    return found


def _narrow(operator: str, arguments: Mapping[str, Any], reference: Callable[..., Any]) -> Case:
    """In bf16, at extents that matrix units take."""
    return Case(operator, {**arguments, "d": 32, "dtype": "bf16"}, reference)


def _both(operator: str, arguments: Mapping[str, Any], reference: Callable[..., Any]) -> list[Case]:
    """In f32 at odd extents too."""
    return [Case(operator, arguments, reference), _narrow(operator, arguments, reference)]


_SELF: dict[str, Any] = {"b": 2, "heads": 4, "kv_heads": 2, "sq": 19, "d": 12, "causal": True}
_CROSS: dict[str, Any] = {"b": 1, "heads": 2, "sq": 13, "sk": 35, "d": 20}
_CACHE: dict[str, Any] = {"b": 3, "heads": 6, "kv_heads": 2, "d": 20}
_RAGGED: dict[str, Any] = {"blocks": 4, "rows": 7, "heads": 2, "d": 12, "sequences": 3}
_LISTED: dict[str, Any] = {"b": 1, "heads": 2, "sq": 20, "sk": 45, "d": 12}

CASES = (
    *_both("attention", _CROSS | {"window": 9}, _plain),
    _narrow("attention_lse", _SELF, _lse),
    Case("attention_backward", _CROSS, _backward),
    _narrow("attention_backward", _SELF, _backward),
    _narrow("sink_attention", _SELF | {"window": 7}, _sink),
    _narrow("softcap_attention", _SELF | {"cap": 2.0}, _softcap),
    _narrow("alibi_attention", _SELF, _alibi),
    Case("alibi_attention", _CROSS | {"causal": False}, _alibi),
    *_both("dropout_attention", _SELF | {"rate": 0.3, "seed": 7}, _dropped),
    Case("dropout_attention", _CROSS | {"d": 12, "rate": 0.5, "seed": 1 << 40}, _dropped),
    Case("attention", {"b": 1, "heads": 3, "kv_heads": 1, "sq": 19, "d": 12, "causal": True},
         _plain),
    _narrow("document_attention", _SELF | {"documents": 4}, _documents),
    Case("rotary", {"b": 2, "heads": 3, "s": 9, "d": 22}, _rotary),
    Case("rotary", {"b": 1, "heads": 3, "s": 9, "d": 16, "paired": True, "dtype": "f16"}, _rotary),
    *_both("rotary_attention", {"b": 1, "heads": 4, "kv_heads": 2, "s": 19, "d": 12},
           _rotary_attention),
    Case("rotary_attention", {"b": 1, "heads": 2, "s": 11, "d": 14, "paired": True},
         _rotary_attention),
    _narrow("decode_attention", _CACHE | {"sk": 37}, _decode),
    _narrow("paged_attention", _CACHE | {"pages": 3, "page": 9, "slots": 11}, _paged),
    Case("paged_attention", _CACHE | {"pages": 3, "page": 8, "slots": 11, "sq": 5}, _paged),
    *_both("ragged_attention", _RAGGED | {"longest": 21, "tokens": 50}, _ragged),
    *_both("block_sparse_attention", _LISTED | {"rows": 10, "keys": 9, "listed": 3}, _block_sparse),
    Case("mla_prefill", {"b": 1, "heads": 3, "sq": 19, "d": 12, "rope": 6}, _mla_prefill),
    Case("mla_prefill", {"b": 1, "heads": 2, "sq": 16, "sk": 32, "d": 32, "rope": 16,
                         "dtype": "bf16"}, _mla_prefill),
    Case("mla_decode", {"b": 2, "heads": 5, "sk": 23, "latent": 20, "rope": 6}, _mla_decode),
    Case("mla_decode", {"b": 2, "heads": 16, "sk": 32, "latent": 32, "rope": 16, "sq": 2,
                        "dtype": "bf16"}, _mla_decode),
)  # fmt: skip
