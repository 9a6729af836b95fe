"""Legal rows of a space, part by part: what breaks a rule of one kernel costs the others nothing.

Rows keep what is held for all parts. Draws of a part are repaired, and where that is slow taken
from rows in which the part is legal, and varied. Knows no target.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ir import variation
from ir.columns import Mask, Matrix
from ir.parts import LEAST, Numbers, Part
from ir.repair import FEW, ROUNDS, repair

if TYPE_CHECKING:
    from ir.space import Space

LOT = 256  # rows whose parts are drawn; more are combined
THRIFT = 0.08  # share of broken rows that a round of repair must mend to be worth its time
PATIENCE = 25  # rounds for the few rows that others may start from
SOME = 4  # rows to start from where they are very rare
SMALL = 4_096  # combinations of what a constraint reads, up to which all are tried
ENOUGH = 16  # rows to start from, below which the seeds are asked, too
WALK_STEPS, LONG_WALK = 10, 30  # the latter where there are few rows to start from
STRENGTH = 2.0  # decisions that a step of a walk changes, on average
DONORS = 4  # tries to find a part that is legal with what a row holds


def drawn(space: Space, rng: np.random.Generator, rows: int) -> Matrix:
    """`rows` rows, legal as far as every part has legal rows with what is held.

    Of several parts not more than a `LOT` are drawn; other rows combine what was found of each.
    """
    worth = [part for part in space.parts.each if part.columns.size >= LEAST]
    if rows > LOT and len(worth) > 1:
        found = _drawn(space, rng, LOT)
        return _combined(space, rng, found, rows) if space.legal(found[:1]).all() else found
    return _drawn(space, rng, rows)


def _combined(space: Space, rng: np.random.Generator, found: Matrix, rows: int) -> Matrix:
    """Legal rows that were found, and others made of their parts: those with the same held."""
    held = space.parts.held
    matrix = space.shape.draw(rng, rows - len(found))
    matrix[:, held] = found[rng.integers(len(found), size=len(matrix))][:, held]
    for values in np.unique(found[:, held], axis=0):
        donors = np.flatnonzero((found[:, held] == values).all(axis=1))
        here = np.flatnonzero((matrix[:, held] == values).all(axis=1))
        for part in space.parts.each:
            given = found[rng.choice(donors, here.size)]
            matrix[np.ix_(here, part.columns)] = given[:, part.columns]
    return np.concatenate([found, matrix])


def _drawn(space: Space, rng: np.random.Generator, rows: int) -> Matrix:
    matrix = space.shape.draw(rng, rows)
    for part in space.parts.each:
        matrix = _filled(space, rng, matrix, part)
    legal = space.legal(matrix)
    if rows and not legal.any():
        matrix = _filled(space, rng, matrix, space.parts.whole)
        legal = space.legal(matrix)
    if legal.any() and not legal.all():
        matrix[~legal] = rng.choice(matrix[legal], int((~legal).sum()))
        for part in space.parts.each:
            matrix[~legal] = _walked(space, rng, matrix[~legal], part)
    return matrix


def repaired(space: Space, rng: np.random.Generator, matrix: Matrix, thrift: float = 0.0) -> Matrix:
    """The rows with what is broken redrawn, of all parts together only where that does not do."""
    for part in space.parts.each:
        matrix = _repaired(space, rng, matrix, part, thrift)
    left = np.flatnonzero(~space.legal(matrix))
    if space.parts.held.size and left.size:
        matrix[left] = _repaired(space, rng, matrix[left], space.parts.whole, thrift)
    return matrix


def seeded(space: Space, rng: np.random.Generator, matrix: Matrix) -> Matrix:
    """Seeds made legal: equal parts are repaired once, hopeless ones taken from other seeds."""
    for part in space.parts.each:
        cells = matrix[:, np.concatenate([part.columns, _forks(space)])]
        _, first, places = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        if not _legal(space, matrix, part).any() and not _possible(space, part):
            continue
        mended = _repaired(space, rng, matrix[first], part, rounds=PATIENCE)
        matrix[:, part.columns] = mended[places.reshape(-1)][:, part.columns]
        _, matrix = _donated(space, rng, matrix, part)
    return matrix


def mended(space: Space, children: Matrix, parents: Matrix) -> Matrix:
    """Children of legal `parents` that have of them the parts which they have wrong.

    Where that is illegal, as with another value of what is held, a child becomes its parent.
    """
    children = children.copy()
    changed = children != parents
    turned = np.flatnonzero(changed[:, _forks(space)].any(axis=1))
    wrong = turned[~space.legal(children[turned])]
    changed[turned] = False
    lost = wrong[(children != parents)[wrong][:, list(space.shape.governing)].any(axis=1)]
    children[lost] = parents[lost]
    doubtful = np.setdiff1d(wrong, lost)
    changed[doubtful] = True
    for part in space.parts.each:
        asked = np.flatnonzero(changed[:, part.columns].any(axis=1))
        broken = asked[~_legal(space, children[asked], part)]
        children[np.ix_(broken, part.columns)] = parents[np.ix_(broken, part.columns)]
    doubtful = doubtful[~space.legal(children[doubtful])]
    children[doubtful] = parents[doubtful]
    return children


def legal_changes(space: Space, matrix: Matrix, changed: Mask) -> Mask:
    """Which rows are legal of those that differ from legal ones where they are `changed`: only
    parts that are touched are looked at."""
    legal = space.legal(matrix, space.parts.loose)
    turned = changed[:, _forks(space)].any(axis=1)
    legal[turned] = space.legal(matrix[turned])
    for part in space.parts.each:
        asked = np.flatnonzero(~turned & changed[:, part.columns].any(axis=1))
        legal[asked] &= _legal(space, matrix[asked], part)
    return legal


def _forks(space: Space) -> Numbers:
    """Columns of what concerns several parts: what is held, and what others depend on."""
    return np.concatenate([space.parts.held, np.array(space.shape.governing, np.intp)])


def _legal(space: Space, matrix: Matrix, part: Part) -> Mask:
    """Which rows are legal in a part."""
    return space.legal(matrix, part.rules)


def _repaired(
    space: Space, rng: np.random.Generator, matrix: Matrix, part: Part, thrift: float = 0.0,
    rounds: int = ROUNDS, enough: int | None = None,
) -> Matrix:  # fmt: skip
    return repair(
        rng, matrix, part, space.shape, space.reads, space.violations,
        thrift=thrift, rounds=rounds, enough=enough,
    )  # fmt: skip


def _filled(space: Space, rng: np.random.Generator, matrix: Matrix, part: Part) -> Matrix:
    """The rows with a part that is legal, where one was found; a space's seeds may have one."""
    if len(matrix) > FEW:
        matrix = _repaired(space, rng, matrix, part, THRIFT)
    few = np.flatnonzero(~_legal(space, matrix, part))[:FEW]
    if not few.size:
        return matrix
    enough = -(-few.size // 2)
    matrix[few] = _repaired(space, rng, matrix[few], part, rounds=PATIENCE, enough=enough)
    found, rows = int(_legal(space, matrix, part).sum()), len(matrix)
    steps = WALK_STEPS
    if found < min(rows, ENOUGH):
        steps = LONG_WALK
        matrix = np.concatenate([space.seed_matrix, matrix])
        if not _legal(space, matrix, part).any() and _possible(space, part):
            matrix[few - rows] = _repaired(space, rng, matrix[few - rows], part, enough=SOME)
    lacking, matrix = _donated(space, rng, matrix, part)
    matrix[lacking] = _walked(space, rng, matrix[lacking], part, steps)
    return matrix[-rows:]


def _possible(space: Space, part: Part) -> bool:
    """Whether no constraint of a part that reads little is broken whatever it reads."""
    for rule in part.rules:
        columns = np.flatnonzero(space.reads[rule])
        sizes = tuple(space.shape.sizes[columns].tolist())
        if 0 < prod(sizes) <= SMALL:
            matrix = np.zeros((prod(sizes), len(space.decisions)), np.int16)
            space.shape.fix(matrix)
            matrix[:, columns] = np.stack(np.unravel_index(np.arange(len(matrix)), sizes), axis=1)
            if not space.legal(matrix, rule[None]).any():
                return False
    return True


def _donated(
    space: Space, rng: np.random.Generator, matrix: Matrix, part: Part
) -> tuple[Numbers, Matrix]:
    """Rows that lacked a legal part and took one of others, and all rows with theirs."""
    legal = _legal(space, matrix, part)
    donors, left = np.flatnonzero(legal), np.flatnonzero(~legal)
    needy = left
    for _ in range(DONORS if donors.size else 0):
        if not left.size:
            break
        trial = matrix[left]
        given = matrix[rng.choice(donors, left.size)]
        trial[:, part.columns] = given[:, part.columns]
        fits = _legal(space, trial, part)
        matrix[left[fits]] = trial[fits]
        left = left[~fits]
    return np.setdiff1d(needy, left), matrix


def _walked(
    space: Space, rng: np.random.Generator, matrix: Matrix, part: Part, steps: int = WALK_STEPS
) -> Matrix:
    """Rows some legal steps away; moves are symmetric, so no legal row is preferred."""
    for _ in range(steps if len(matrix) else 0):
        moved = variation.mutate(space.shape, rng, matrix, STRENGTH, among=part.columns)
        matrix = np.where(_legal(space, moved, part)[:, None], moved, matrix)
    return matrix
