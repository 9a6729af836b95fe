"""Arguments that an operator cannot have are told in one line, with the argument's value."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ir import UsageError, load_operator

_IMAGE = {"n": 1, "h": 6, "w": 6, "c": 4, "f": 4}
_HEADS = {"b": 1, "heads": 4, "sq": 5, "d": 4}
_SPARSE = {"m": 16, "n": 8, "k": 24, "block": 8, "tiles": 2}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("conv1d", {"n": 1, "length": 4, "c": 1, "f": 1, "r": 3, "dilation": 2},
         "conv1d: a filter of 3, 2 apart, does not fit 4 with padding 0"),
        ("conv2d", _IMAGE | {"dilation": 0}, "dilation=0"),
        ("conv3d", _IMAGE | {"t": 2}, "conv3d: a filter of 3 does not fit 2 with padding 0"),
        ("depthwise_conv2d", {"n": 1, "h": 6, "w": 6, "c": 4, "padding": -1}, "padding=-1"),
        ("grouped_conv2d", _IMAGE | {"groups": 3}, "c=4 and f=4 are no multiples of groups=3"),
        ("transposed_conv2d", _IMAGE | {"stride": 0}, "transposed_conv2d: stride=0"),
        ("transposed_conv2d", _IMAGE | {"padding": -2}, "padding=-2"),
        ("groupnorm", {"b": 1, "s": 4, "c": 6, "groups": 4}, "c=6 is no multiple of groups=4"),
        ("quantised_rmsnorm", {"m": 2, "n": 3, "out": "i4"}, "out='i4'"),
        ("quantise_rows", {"m": 2, "n": 3, "out": "bf16"}, "out='bf16'"),
        ("quantise_blocks", {"m": 2, "n": 30, "block": 7}, "30 is no multiple of block=7"),
        ("dequantise_squares", {"m": 12, "n": 8, "block": 0}, "12 is no multiple of block=0"),
        ("embedding_bag", {"m": 2, "bag": 2, "rows": 4, "d": 3, "mode": "max"}, "mode='max'"),
        ("blocked_sparse_matmul", _SPARSE | {"k": 20}, "k=20 is no multiple of block=8"),
        ("bsr_matmul", _SPARSE | {"m": 3, "longest": 1}, "m=3 is no multiple of block=8"),
        ("matern", {"n": 3, "d": 2, "halves": 4}, "matern: halves=4"),
        ("distances", {"n": 3, "d": 2, "kind": "cosine"}, "distances: kind='cosine'"),
        ("reduction", {"a": 2, "b": 3, "c": 4, "over": "cd"}, "over='cd'"),
        ("reduction", {"a": 2, "b": 3, "c": 4, "over": "cc"}, "over='cc'"),
        ("reduction", {"a": 2, "b": 3, "c": 4, "kind": "median"}, "kind='median'"),
        ("row_norm", {"m": 2, "n": 3, "order": 3}, "row_norm: order=3"),
        ("hadamard", {"m": 2, "n": 48}, "hadamard: n=48 is no power of two"),
        ("dft", {"m": 2, "n": 50000}, "dft: n=50000; it is 1 to 46340"),
        ("adamw", {"n": 5, "step": 0}, "adamw: step=0"),
        ("activation", {"m": 2, "n": 3, "kind": "swish"}, "activation: kind='swish'"),
        ("glu", {"m": 2, "n": 3, "gate": "gello"}, "glu: gate='gello'"),
        ("dropout", {"m": 2, "n": 3, "rate": 1.0}, "dropout: rate=1.0"),
        ("nf4_matmul", {"m": 2, "n": 3, "k": 96}, "nf4_matmul: k=96: no multiple of group=64"),
        ("mxfp4_matmul", {"m": 2, "n": 3, "k": 9, "group": 3}, "group=3, an even number"),
        ("mx_matmul", {"m": 2, "n": 3, "k": 48}, "mx_matmul: k=48: no multiple of group=32"),
        ("mx_matmul", {"m": 2, "n": 3, "k": 32, "dtype": "bf16"}, "dtype='bf16': A is of e4m3 or"),
        ("w2a8_matmul", {"m": 2, "n": 3, "k": 6}, "w2a8_matmul: k=6: no multiple of 4"),
        ("dropout_attention", _HEADS | {"rate": 1.0}, "dropout_attention: rate=1.0"),
        ("dropout_attention", _HEADS | {"rate": -0.1}, "rate=-0.1; it is at least 0 and below 1"),
        ("dropout_attention", _HEADS | {"kv_heads": 3}, "heads=4 is no multiple of kv_heads=3"),
        ("dropout_attention", _HEADS | {"sk": 3, "causal": True}, "sq=5 > sk=3"),
        ("delta_rule_chunked", {"b": 1, "t": 9, "heads": 1, "d": 4, "chunk": 4}, "chunk=4"),
        ("grouped_conv2d", _IMAGE | {"groups": 2, "dilation": 3}, "3, 3 apart, does not fit 6"),
        ("rope", {"tokens": 2, "heads": 1, "d": 5}, "rope: d=5 is odd"),
    ],
)  # fmt: skip
def test_impossible_arguments(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        load_operator(name).build(**arguments)
    assert "\n" not in str(caught.value)
