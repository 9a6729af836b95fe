"""States merged, neighbour by neighbour: exactly, with errors beside them, or with drawn roundings.

The functions of a merge are found once; then each is one call on whole arrays. Knows no axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ir.dtypes import is_float
from ir.merges import CAST, merge_of
from ir.ops.base import Array, Environment, Op, Scope, TileArray, TileType
from ir.ops.map import Cast, Constant, Map
from ir.ops.parts import first_part, in_groups, joined, neighbours
from ir.perturbed import Noise
from ir.roundoff import ErrorModel
from ir.scalar import scalar_function

_BLOCK = 1 << 17  # elements that are folded at a time on a host, a megabyte in f64
AHEAD = 64  # neighbours that are one before the next ones come
_GROUPED = 1 << 12  # points of a row of which prefixes are found in groups
_GROUP = 64  # points of one
LONG = 1 << 14  # points of a row of which not all are drawn in each run


@dataclass(frozen=True, slots=True)
class _Step:
    """An op of a merge, of values by their number: states before and after, then earlier steps."""

    op: Op
    name: str
    args: tuple[int, ...] = ()
    types: tuple[TileType, ...] = ()


class _Listing:
    """The steps of a merge of states of some dtypes, in order, and where its results are."""

    def __init__(self, merge: str, dtypes: Sequence[str]) -> None:
        self.steps: list[_Step] = []
        self._count = 2 * len(dtypes)
        before = list(enumerate(dtypes))
        after = list(enumerate(dtypes, start=len(dtypes)))
        found = merge_of(merge).merged(before, after, self._apply, self._number)
        self.results = [
            self._cast(value, dtype)[0] for value, dtype in zip(found, dtypes, strict=True)
        ]

    def _new(self, step: _Step, dtype: str) -> tuple[int, str]:
        self.steps.append(step)
        self._count += 1
        return self._count - 1, dtype

    def _apply(self, function: str, args: list[tuple[int, str]]) -> tuple[int, str]:
        if function.startswith(CAST):
            return self._cast(args[0], function[len(CAST) :])
        op, types = Map(function), tuple(TileType((), dtype) for _, dtype in args)
        places = tuple(place for place, _ in args)
        return self._new(_Step(op, function, places, types), op.infer(types, Scope({}, {})).dtype)

    def _number(self, value: float | int) -> tuple[int, str]:
        dtype = "i32" if type(value) is int else "f32"
        return self._new(_Step(Constant(value, dtype), dtype), dtype)

    def _cast(self, value: tuple[int, str], dtype: str) -> tuple[int, str]:
        place, source = value
        if source == dtype:
            return value
        return self._new(_Step(Cast(dtype), dtype, (place,), (TileType((), source),)), dtype)


@lru_cache(maxsize=256)
def _listed(merge: str, dtypes: tuple[str, ...]) -> _Listing:
    return _Listing(merge, dtypes)


def is_alike(merge: str, one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether a merge of states of either dtypes gives the same numbers: nothing is converted, and
    no function asks for a type."""
    steps = (*_listed(merge, one).steps, *_listed(merge, other).steps)
    return not any(
        isinstance(step.op, Cast)
        or (isinstance(step.op, Map) and scalar_function(step.op.function).typed)
        for step in steps
    )


@lru_cache(maxsize=256)
def _is_smooth(merge: str) -> bool:
    """Whether what comes of a merge is moved as much more as its roundings are larger: nothing is
    compared, stepped or chosen."""
    functions = list[str]()
    none = [None] * merge_of(merge).states
    merge_of(merge).merged(none, none, lambda name, _: functions.append(name), lambda _: None)
    casts = [name[len(CAST) :] for name in functions if name.startswith(CAST)]
    rows = [scalar_function(name) for name in functions if not name.startswith(CAST)]
    return all(map(is_float, casts)) and not any(
        r.compares or r.steps or r.jumps or r.result == "select" for r in rows
    )


class Merger:
    """Merges states along their first axis; `dtypes` are those of the states."""

    def __init__(
        self, merge: str, dtypes: tuple[str, ...], env: Environment, model: ErrorModel | None,
        noise: Noise | None = None,
    ) -> None:  # fmt: skip
        listing = _listed(merge, dtypes)
        self.merge, self.dtypes, self.env = merge, dtypes, env
        self.xp, self.model, self.noise = env.xp, model, noise
        self.steps = [(step, replace(env, types=step.types)) for step in listing.steps]
        self.results = listing.results

    def prefixes(self, states: list[TileArray]) -> list[TileArray]:
        """The fold up to each point: of many, in groups of neighbours, then behind all before."""
        count = states[0].array.shape[0]
        if count < _GROUPED:
            return self._doubled(states)
        rows = _rows(states[0]) if self.xp is np else count // _GROUP * _GROUP
        whole = count // _GROUP * _GROUP
        lows = [*range(0, whole, rows), *([whole] if whole < count else [])]
        inside = self._behind(
            *(self._in_groups(states, *ends) for ends in pairwise([*lows, count]))
        )
        ends = self.xp.arange(_GROUP - 1, count - 1, _GROUP)
        before = self.prefixes([first_part(state, ends) for state in inside])
        found = [[first_part(state, slice(0, _GROUP)) for state in inside]]
        for low in range(_GROUP, count, rows):
            here = slice(low, min(low + rows, count))
            group = self.xp.arange(here.start, here.stop) // _GROUP - 1
            left, right = (
                [first_part(state, part) for state in side]
                for side, part in ((before, group), (inside, here))
            )
            found.append(self.merged(left, right))
        return self._behind(*found)

    def _in_groups(self, states: list[TileArray], low: int, high: int) -> list[TileArray]:
        """The fold of some points up to each of them, from the first one of its group on."""
        size = min(_GROUP, high - low)
        apart = [first_part(state, slice(low, high)) for state in states]
        return [
            neighbours(state)
            for state in self._doubled([in_groups(state, size, self.xp) for state in apart])
        ]

    def _doubled(self, states: list[TileArray]) -> list[TileArray]:
        """Of few points: pairs, pairs of pairs and so on, whose second half goes behind the end of
        the first (Sklansky, 1960)."""
        count, step = states[0].array.shape[0], 1
        places = np.arange(count)
        while step < count:
            late = places // step % 2 == 1
            right = places[late]
            turned = np.argsort(np.concatenate([places[~late], right]))
            ends, early, late_ones, back = map(
                self.xp.asarray, (right // step * step - 1, places[~late], right, turned)
            )
            before, after, kept = (
                [first_part(state, part) for state in states] for part in (ends, late_ones, early)
            )
            both = self._behind(kept, self.merged(before, after))
            states = [first_part(state, back) for state in both]
            step *= 2
        return states

    def total(self, states: list[TileArray]) -> list[TileArray]:
        """The fold of all, with one point left along the first axis."""
        while self.is_long(states):
            states = self.ahead(states)
        return self._halved(states, 1)

    def is_long(self, states: Sequence[TileArray]) -> bool:
        """Whether it is folded in blocks that stay in a host's cache."""
        return self.xp is np and states[0].array.shape[0] >= 2 * _rows(states[0])

    def ahead(self, states: list[TileArray]) -> list[TileArray]:
        """The fold of each few neighbours, so many points at a time."""
        count, rows = states[0].array.shape[0], _rows(states[0])
        blocks = [
            self._halved(
                [first_part(s, slice(low, low + rows)) for s in states],
                max(1, min(rows, count - low) // AHEAD),
            )
            for low in range(0, count, rows)
        ]
        return self._behind(*blocks)

    def is_sampled(self, states: Sequence[TileArray]) -> bool:
        """Whether it has so many neighbours that each is drawn in one run alone, and roundings
        that add up."""
        return self.is_long(states) and states[0].array.shape[0] >= LONG and _is_smooth(self.merge)

    def partly(self, states: list[TileArray], exact: list[TileArray]) -> list[TileArray]:
        """What is `ahead` of the states of a long row: as it is `exact`, with the roundings of
        every so manieth drawn, of others in each run, as much larger as there are runs."""
        assert self.noise is not None
        rows, runs = _rows(states[0]), self.noise.runs
        whole = states[0].array.shape[0] // rows * (rows // AHEAD)
        own = np.arange(self.noise.seed % runs, whole, runs)
        points = (own[:, None] * AHEAD + np.arange(AHEAD)).reshape(-1)
        louder = replace(self.noise, times=runs)
        merger = Merger(self.merge, self.dtypes, self.env, self.model, louder)
        drawn = merger.ahead([first_part(state, points) for state in states])
        return [_with(*pair, own) for pair in zip(exact, drawn, strict=True)]

    def _halved(self, states: list[TileArray], least: int) -> list[TileArray]:
        """Neighbours folded until so few points are left along the first axis."""
        while (count := states[0].array.shape[0]) > least:
            even = count - count % 2
            left = [first_part(state, slice(0, even, 2)) for state in states]
            right = [first_part(state, slice(1, even, 2)) for state in states]
            both = self.merged(left, right)
            if count % 2:
                rest = [first_part(state, slice(even, None)) for state in states]
                both = self._behind(both, rest)
            states = both
        return states

    def _behind(self, *parts: Sequence[TileArray]) -> list[TileArray]:
        """States of parts, one behind the other along the axis."""
        each = zip(*parts, strict=True)
        return [joined(of, of[0].axes[0], of[0].axes, self.xp) for of in each]

    def merged(self, left: Sequence[TileArray], right: Sequence[TileArray]) -> list[TileArray]:
        values = [*left, *right]
        with np.errstate(all="ignore"):
            for step, env in self.steps:
                values.append(self._made(step, [values[place] for place in step.args], env))
        return [values[place] for place in self.results]

    def _made(self, step: _Step, args: Sequence[TileArray], env: Environment) -> TileArray:
        """What a step makes, with its error, or moved by part of it."""
        exact = step.op.meaning(args, env)
        if self.model is None:
            return exact
        error = step.op.error(args, step.types, exact, env, self.model)
        if self.noise is not None:
            return self.noise.moved(exact, error, step.name)
        return TileArray(exact.axes, exact.array, error)


def prefix_passes(count: int) -> float:
    """How often so many points are merged where prefixes are kept."""
    if count >= _GROUPED:
        return 1.0 + math.log2(_GROUP) / 2
    return max(1.0, math.log2(max(1, count)) / 2)


def _with(tile: TileArray, other: TileArray, places: Array) -> TileArray:
    """A tile with the elements of another at some places of its first axis."""
    array = tile.array.copy()
    array[places] = other.array
    return TileArray(tile.axes, array)


def _rows(state: TileArray) -> int:
    """Points along the first axis whose intermediate results stay in a cache."""
    count, size = state.array.shape[0], state.array.size
    return AHEAD * max(1, int(_BLOCK * count // size // AHEAD))
