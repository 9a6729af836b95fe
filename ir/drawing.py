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
LEAST_LOT = 16  # where a space has so many branches that they share a lot
THRIFT = 0.08  # share of broken rows that a round of repair must mend to be worth its time
PATIENCE = 25  # rounds for the few rows that others may start from
SOME = 4  # rows to start from where they are very rare
SMALL = 4_096  # combinations of what a constraint reads, up to which all are tried
ENOUGH = 8  # rows to start from, below which the seeds are asked, too
WALK_STEPS, LONG_WALK = 10, 30  # the latter where there are few rows to start from
FEWEST_STEPS = 4  # of a walk, however many moves are tried at once
AT_ONCE = 128  # moves of a walk that are checked together
FEW_STEPS = 3  # of rows that combine what a part of a lot brought
STRENGTH = 2.0  # decisions that a step of a walk changes, on average
DONORS = 4  # tries to find a part that is legal with what a row holds


def drawn(space: Space, rng: np.random.Generator, rows: int, lot: int = LOT) -> Matrix:
    """`rows` rows, legal as far as every part has legal rows with what is held.

    Of several parts not more than a `lot` are drawn; other rows combine what was found of each.
    """
    if rows > lot and worth_recombining(space):
        found = _drawn(space, rng, lot)
        if not space.legal(found[:1]).all():
            return found
        others = recombined(space, rng, found, rows - lot)
        for part in space.parts.each if lot < LOT else ():
            others = _walked(space, rng, others, part, FEW_STEPS)
        return np.concatenate([found, others])
    return _drawn(space, rng, rows)


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
    """Seeds made legal: equal parts are repaired once, hopeless ones taken from other seeds, those
    of each branch apart."""
    if space.shape.governing:
        codes = matrix[:, space.shape.governing[0]].copy()
        for code, branch in enumerate(space.branches):
            here = np.flatnonzero(codes == code)
            if here.size:
                matrix[here] = seeded(branch, rng, matrix[here])
        return matrix
    for part in space.parts.each:
        cells = matrix[:, np.concatenate([part.columns, _forks(space)])]
        _, first, places = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        if not _legal(space, matrix, part).any() and not _possible(space, part):
            continue
        mended = _repaired(space, rng, matrix[first], part, rounds=PATIENCE)
        matrix[:, part.columns] = mended[places.reshape(-1)][:, part.columns]
        _, matrix = _donated(space, rng, matrix, part)
    return matrix


def ready(space: Space, rng: np.random.Generator, matrix: Matrix) -> Matrix:
    """The seeds that are legal as they are; those of a branch that has none are made legal."""
    if not space.shape.governing:
        legal = matrix[space.legal(matrix)]
        if len(legal) or not len(matrix):
            return legal
        made = seeded(space, rng, matrix)
        return made[space.legal(made)]
    found, places = [matrix[:0]], [np.empty(0, np.intp)]
    codes = matrix[:, space.shape.governing[0]]
    for code, branch in enumerate(space.branches):
        here = np.flatnonzero(codes == code)
        if here.size:
            found.append(ready(branch, rng, matrix[here]))
            places.append(np.full(len(found[-1]), here[0]))
    order = np.argsort(np.concatenate(places), kind="stable")
    return np.concatenate(found)[order]


def mended(space: Space, children: Matrix, parents: Matrix) -> Matrix:
    """Children of legal `parents` that have of them the parts which they have wrong.

    Where that is illegal, as with another value of what is held, a child becomes its parent.
    """
    children = children.copy()
    changed = children != parents
    broken = space.violations(children)
    turned = changed[:, _forks(space)].any(axis=1)
    wrong = turned & broken.any(axis=1)
    lost = wrong & changed[:, list(space.shape.governing)].any(axis=1)
    children[lost] = parents[lost]
    changed[turned] = False
    doubtful = wrong & ~lost
    changed[doubtful] = True
    doubted: list[Numbers] = []  # rules of what doubtful rows took from their parents
    for part in space.parts.each:
        touched = changed[:, part.columns].any(axis=1)
        rows = np.flatnonzero(touched & broken[:, part.rules].any(axis=1))
        children[np.ix_(rows, part.columns)] = parents[np.ix_(rows, part.columns)]
        doubted += [part.rules] if doubtful[rows].any() else []
    left = np.flatnonzero(doubtful)
    if left.size:
        loose = broken[np.ix_(left, space.parts.loose)].any(axis=1)
        hopeless = loose | ~space.legal(children[left], _together(doubted))
        children[left[hopeless]] = parents[left[hopeless]]
    return children


def recombined(space: Space, rng: np.random.Generator, found: Matrix, rows: int) -> Matrix:
    """Legal rows made of the parts of legal ones, each of one that agrees in what parts share."""
    forks = _forks(space)
    matrix = space.shape.draw(rng, rows)
    matrix[:, forks] = found[rng.integers(len(found), size=rows)][:, forks]
    for values in np.unique(found[:, forks], axis=0):
        donors = np.flatnonzero((found[:, forks] == values).all(axis=1))
        here = np.flatnonzero((matrix[:, forks] == values).all(axis=1))
        for part in space.parts.each:
            given = found[rng.choice(donors, here.size)]
            matrix[np.ix_(here, part.columns)] = given[:, part.columns]
    return space.shape.settle(matrix)


def worth_recombining(space: Space) -> bool:
    """Whether several parts are large enough for rows made of them to be new."""
    return sum(part.columns.size >= LEAST for part in space.parts.each) > 1


def _forks(space: Space) -> Numbers:
    """Columns of what concerns several parts: what is held, and what others depend on."""
    return np.concatenate([space.parts.held, np.array(space.shape.governing, np.intp)])


def _together(rules: list[Numbers]) -> Numbers:
    return np.concatenate([np.empty(0, np.intp), *rules])


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
    return needy[~np.isin(needy, left)], matrix


def _walked(
    space: Space, rng: np.random.Generator, matrix: Matrix, part: Part, steps: int = WALK_STEPS
) -> Matrix:
    """Rows some steps away, those of which are taken that are legal.

    Checks of few rows take as long as those of many: so of few as many moves are tried at once as
    `AT_ONCE` has room for, of which the first that is legal stands for all before it.
    """
    if not len(matrix):
        return matrix
    fan = max(1, min(steps // FEWEST_STEPS, AT_ONCE // len(matrix)))
    for _ in range(-(-steps // fan)):
        rows = np.repeat(matrix, fan, axis=0)
        moved = variation.mutate(space.shape, rng, rows, STRENGTH, among=part.columns)
        legal = np.asarray(_legal(space, moved, part)).reshape(-1, fan)
        taken = np.arange(len(matrix)) * fan + legal.argmax(axis=1)
        able = legal.any(axis=1).reshape(-1, 1)
        matrix = np.where(able, moved[taken], matrix)
    return matrix
