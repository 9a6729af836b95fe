"""Causal sums by chunks with a carried state: linear work where the text has a square.

Where o[i] is a sum over j <= i of w(i, j) v[j], and w is a product of a function of i and one of j
(an inner product counts as one, over its axis; so does the exponential of a difference), what lies
before a chunk of i is a state: the sum over those j of the function of j times v. A chunk adds to
it, and what was there before decays by the exponent's difference between ends of chunks. Inside a
chunk the sum stays as it is written. So does a state that each step scales and adds a product to.
Known as the chunked form of linear attention (Hua and others, 2022; Sun and others, 2023; Yang and
others, 2024; Dao and Gu, 2024). Exponents are taken relative to ends of chunks, so that they stay
as small as they are in the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.ops.recur import Recur
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.causal import Causal, causal
from ir.rewrite.corrected import corrected
from ir.rewrite.correcting import Corrected
from ir.rewrite.decaying import Stepped, stepped
from ir.rewrite.fronted import fronted
from ir.rewrite.substitution import Unsplit

CHUNKS = (32, 64, 128)
SHORTEST, NEAREST = 16, 2  # of other lengths: points of one, and how many of them
NAME = "chunks"
WHY = "what comes before a chunk is one state, a sum that each chunk scales and adds to"


def chunked(program: Program) -> Iterator[tuple[str, int, Program]]:
    """The program by chunks of several lengths: a name, the node of the sum or state, the form."""
    for position, node in enumerate(program.nodes):
        found: Causal | Stepped | Corrected | None = None
        if isinstance(node.op, Contract) and is_float(node.dtype):
            found = causal(program, position)
        elif isinstance(node.op, Recur):
            found = _state(program, position)
            if found and not lengths(program.axes[found.along]):
                for chunk, form in _behind_others(found, position):
                    yield f"{NAME}-{chunk}", position, form
        for chunk in lengths(program.axes[found.along]) if found else ():
            made = _made(found, chunk) if found else None
            if made is not None:
                yield f"{NAME}-{chunk}", position, made


def _state(program: Program, position: int) -> Stepped | Corrected | None:
    return stepped(program, position) or corrected(program, position)


def _behind_others(found: Stepped | Corrected, position: int) -> Iterator[tuple[int, Program]]:
    """Forms of steps whose number no chunk divides: behind others that change nothing."""
    extent = found.program.axes[found.along]
    more = fronted(found.program, found.along, CHUNKS[1]) if extent >= CHUNKS[1] else None
    state = _state(more.program, more.places[position]) if more else None
    for chunk in lengths(more.program.axes[found.along]) if more and state else ():
        made = _made(state, chunk) if state else None
        behind = more.behind(made) if more and made else None
        if behind is not None:
            yield chunk, behind


def lengths(extent: int) -> tuple[int, ...]:
    """Of chunks of so many points: those that divide them, else the nearest numbers that do."""
    usual = tuple(chunk for chunk in CHUNKS if extent % chunk == 0 and extent >= 2 * chunk)
    if usual or extent < 2 * CHUNKS[0]:
        return usual
    others = [n for n in range(SHORTEST, CHUNKS[-1] + 1) if extent % n == 0 and extent >= 2 * n]
    middle = math.log(CHUNKS[1])
    return tuple(sorted(sorted(others, key=lambda n: abs(math.log(n) - middle))[:NEAREST]))


def _made(found: Causal | Stepped | Corrected, chunk: int) -> Program | None:
    """The form, with inputs cut as well where they can be."""
    for whole in (False, True):
        try:
            return found.form(chunk, whole)
        except (Unsplit, ProgramError):
            continue
    return None
