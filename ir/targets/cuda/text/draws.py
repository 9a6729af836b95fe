"""Drawn numbers that are compared with a constant: as the words that they are made of.

A number of [0, 1) is the upper 24 bits of a word, so that it is below a bound exactly where the
word is below another: one comparison, where a shift, a conversion, a product and one were.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.counting import FRACTION
from ir.ops.map import Constant, Map
from ir.program import Program

_REST = 32 - FRACTION


@dataclass(frozen=True, slots=True)
class Draw:
    """Whether the word `word` is below a bound, or is not."""

    word: int
    bound: int  # of the word; 0 .. 2^32
    below: bool

    def text(self, word: str) -> str:
        """In CUDA C++."""
        return f"((i64)(u32){word} {'<' if self.below else '>='} {self.bound}ll)"


def compared_draw(program: Program, position: int) -> Draw | None:
    """What a node asks of a drawn number, if it compares one with a constant; otherwise None."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function not in ("lt", "le"):
        return None
    for place, arg in enumerate(node.args):
        drawn, other = program.nodes[arg], program.nodes[node.args[1 - place]]
        if not isinstance(drawn.op, Map) or drawn.op.function != "unit":
            continue
        if not isinstance(other.op, Constant) or not math.isfinite(other.op.value):
            return None
        bound = float(other.op.value) * 2.0**FRACTION
        # u < b, and b <= u where it is not; u <= b, and b < u where it is not
        open_ = (node.op.function == "lt") == (place == 0)
        count = math.ceil(bound) if open_ else math.floor(bound) + 1
        count = min(max(count, 0), 1 << FRACTION)
        return Draw(drawn.args[0], count << _REST, place == 0)
    return None
