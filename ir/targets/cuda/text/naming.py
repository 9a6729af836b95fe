"""What tensors are called in a kernel's text, which has words and names of its own."""

from __future__ import annotations

import re

from ir.c_words import C_WORDS, OTHER_WORDS
from ir.ops.load import Load
from ir.ops.map import Map
from ir.ops.reduce import Carry, Reduce
from ir.program import Program

_OWN = re.compile(r"[tv]\d+|(cut|kept)_\w+")  # what goes from kernel to kernel
_MACROS = frozenset({"NULL", "NAN", "INFINITY", "HUGE_VAL"})
_PLACES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"})
_TYPES = "u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bf16 f16"
_FUNCTIONS = (
    "abs ceil ceilf erf erff exp expf expm1f fabsf floor floorf fmaf isinf log log1pf logf main "
    "max min rint rintf round rsqrt rsqrtf sqrt sqrtf tanh tanhf trunc truncf"
)
WORDS = C_WORDS | OTHER_WORDS | _MACROS | _PLACES | {*_TYPES.split(), *_FUNCTIONS.split()}
"""What a kernel's text has to mean something else by, whoever writes it."""


def text_name(tensor: str) -> str:
    """A tensor's name in text: its own, if no word of the text can be that.

    Whatever the text calls anything itself has no capital, but for macros.
    """
    plain = any(letter.isupper() for letter in tensor) or _OWN.fullmatch(tensor)
    safe = plain and tensor not in WORDS and not tensor.startswith("TW_")
    return tensor if safe else f"{tensor}_data"


def value_name(program: Program, position: int) -> str:
    """A readable name of a node's value."""
    op = program.nodes[position].op
    if isinstance(op, Load):
        return text_name(op.tensor)
    if isinstance(op, (Reduce, Carry)):
        return f"{op.kind}_{position}"
    return f"{op.function if isinstance(op, Map) else op.name}_{position}"
