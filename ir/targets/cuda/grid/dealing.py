"""Tiles whose main loops differ in length: the longest are dealt first.

A mask that ends a main loop at a bound along a tile's rows (causal attention, triangular factors)
makes tiles of one grid unequal. Begun with the shortest, the last wave is one of the longest; begun
with the longest, what is left at the end is short (Graham, "Bounds on multiprocessing timing
anomalies", 1969). Batches in which the longest come first together share what they read in the L2
cache only if they are few, so how many is a decision.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.columns import Decision
from ir.program import Program
from ir.rewrite.domain import live_range
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.text.writer import Writer

NAME = "deal"
AS_THEY_COME = 0
TOGETHER = (1, 4, 16, 64)
_COUNTED = 1 << 17  # tiles that are counted one by one


def growth(program: Program, roles: Roles) -> int:
    """Whether main loops grow (1) or shrink (-1) along the last axis of rows; 0 for neither."""
    if len(roles.walked) != 1:
        return 0
    (walk,), row = roles.walked, roles.rows[-1]
    found = set()
    for condition in live_range(program, walk):
        terms = dict(condition.terms)
        if row in terms and walk in terms:
            found.add(1 if terms[row] > 0 else -1)
    return found.pop() if len(found) == 1 else 0


def deal_decision(name: str, owner: str, program: Program, roles: Roles) -> Decision | None:
    """The decision, where tiles are unequal."""
    if not growth(program, roles):
        return None
    batches = prod(program.axes[axis] for axis in roles.batch)
    domain = (AS_THEY_COME, *(n for n in TOGETHER if n <= max(1, batches)))
    why = (
        "batches whose tiles are dealt together, those with the longest main loops first; "
        f"{AS_THEY_COME}: tiles in the order of the raster, batch after batch"
    )
    return Decision(name, domain, "order", owner, why, AS_THEY_COME, unsaid=AS_THEY_COME)


@lru_cache(maxsize=4096)
def busiest(steps: int, others: int, batches: int, together: int, blocks: int) -> float:
    """How many tiles of mean length the busiest of `blocks` has, of which each has every so
    many-th: the last row axis has `steps` tiles of 1, 2, .. length, for each of which there are
    `others` in a batch."""
    if steps * others * batches > _COUNTED:  # of so many, each block has about as much
        return steps * others * batches / blocks
    lengths = np.arange(steps, 0, -1) if together else np.arange(1, steps + 1)
    each, found = max(1, together), list[NDArray[np.int64]]()
    for count in (each, batches % each):
        found.append(np.repeat(lengths, count * others))
    dealt = np.concatenate([np.tile(found[0], batches // each), found[1]])
    share = np.zeros(-(-dealt.size // blocks) * blocks, dtype=np.int64)
    share[: dealt.size] = dealt
    most = share.reshape(-1, blocks).sum(axis=0).max()
    return float(most / lengths.mean())


def declare_dealt(
    w: Writer, tile: str, together: int, batches: int, counts: tuple[int, int, int], grows: bool
) -> tuple[str, str, str]:
    """Declare a tile's batch, row and column; `counts` are the steps of the last row axis, those of
    the other row axes, and the columns."""
    steps, others, columns = counts
    inner, together = steps * others * columns, min(together, batches)
    section, rest, here = w.name("section"), w.name("rest"), w.name("here")
    w.line(f"const i32 {section} = {tile} / {together * inner} * {together};")
    w.line(f"const i32 {rest} = {tile} % {together * inner};")
    some = f"min({together}, {batches} - {section})" if batches % together else str(together)
    w.line(f"const i32 {here} = {some};")
    batch, step, row, column = (w.name(x) for x in ("batch", "step", "row", "column"))
    each = f"({here} * {others * columns})"
    w.line(f"const i32 {step} = {f'{steps - 1} - ' if grows else ''}{rest} / {each};")
    left = w.name("left")
    w.line(f"const i32 {left} = {rest} % {each};")
    w.line(f"i32 {batch} = {section} + {left} / {others * columns};")
    w.line(f"const i32 {row} = {left} / {columns} % {others} * {steps} + {step};")
    w.line(f"const i32 {column} = {left} % {columns};")
    return batch, row, column
