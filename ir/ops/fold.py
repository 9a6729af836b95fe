"""fold: combine one or several tiles along an axis by an associative merge, or keep each prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ir.dtypes import compute_dtype, is_float
from ir.errors import ProgramError
from ir.merges import CAST, NAMED, Merge, merge_of
from ir.ops.base import (
    Environment,
    Error,
    Scope,
    TileArray,
    TileType,
    union_axes,
    volume,
)
from ir.ops.map import Cast, Constant, Map
from ir.ops.parts import first_part, joined, whole, without_first
from ir.perturbed import Noise
from ir.propagation import converted
from ir.propagation_sums import reduced, running_sum
from ir.roundoff import ROUNDED, ErrorModel
from ir.scalar import scalar_function

_BLOCK = 1 << 17  # elements that are folded at a time on a host, a megabyte in f64
_AHEAD = 64  # neighbours that are one before the next ones come


@dataclass(frozen=True, slots=True)
class Fold:
    """State `part` of folding the arguments, one for each state of `merge`, along `axis`.

    In order of the coordinate, or from the last one down with `backward`. With `keep` the result
    has the axis, and holds at each point the fold up to and including it.
    """

    axis: str
    merge: str
    part: int = 0
    keep: bool = False
    backward: bool = False
    name: ClassVar[str] = "fold"

    @property
    def how(self) -> Merge:
        return merge_of(self.merge)

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        what = f"fold over {self.axis}"
        if len(args) != self.how.states:
            raise ProgramError(f"{what}: {len(args)} tiles for {self.how.states} states")
        if not 0 <= self.part < len(args):
            raise ProgramError(f"{what}: no state {self.part} of {len(args)}")
        axes = union_axes(args)
        if self.axis not in axes:
            raise ProgramError(f"{what}: {self.axis!r} is not an axis of the operands {axes}")
        if not self.keep and not scope.extents[self.axis]:
            raise ProgramError(f"{what}: the axis has extent 0, of which nothing is left")
        types = [compute_dtype(arg.dtype) for arg in args]
        for number, (found, kept) in enumerate(zip(self._types(types), types, strict=True)):
            if (is_float(found) and not is_float(kept)) or (found == "bool") != (kept == "bool"):
                raise ProgramError(f"{what}: state {number} is {kept}, its merge gives {found}")
        kept_axes = axes if self.keep else tuple(axis for axis in axes if axis != self.axis)
        return TileType(kept_axes, types[self.part])

    def _types(self, types: Sequence[str]) -> list[str]:
        """The types of what the merge makes of states of `types`."""
        scope = Scope({}, {})

        def apply(function: str, args: list[str]) -> str:
            if function.startswith(CAST):
                return function[len(CAST) :]
            return Map(function).infer([TileType((), arg) for arg in args], scope).dtype

        return self.how.merged(types, types, apply, lambda v: "i32" if type(v) is int else "f32")

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        return self._folded(args, [TileType(a.axes, _like(a)) for a in args], env, None)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        """Of a sum by the number of its terms; else that of a tree, as often as a kernel that goes
        one by one rounds more often than a tree."""
        if self.merge == NAMED["sum"]:
            return self._of_sum(args[0], types[0], result, model)
        found = self._folded(args, types, env, model).error
        if found is None or not is_float(compute_dtype(types[self.part].dtype)):
            return found
        more = self._more(env)
        return Error(found.wide * more, found.spread * more * more)

    def _more(self, env: Environment) -> float:
        """How much more often than a tree a kernel rounds that goes one by one, by runs where there
        are many and no state on the way is asked for."""
        terms = len(env.coordinates[self.axis])
        count = terms if self.keep else float(ROUNDED["f32"].in_a_row(terms))
        return count / max(1.0, float(np.log2(terms)))

    def drawn(
        self, args: Sequence[TileArray], types: Sequence[TileType], exact: TileArray,
        env: Environment, model: ErrorModel, noise: Noise, name: str,
    ) -> TileArray:  # fmt: skip
        """The `exact` result with the roundings of a run drawn: those of each merge of a tree, and
        as much more as random numbers add up to of which a kernel that goes one by one has more."""
        if self.merge == NAMED["sum"]:
            return noise.moved(exact, self._of_sum(args[0], types[0], exact, model), name)
        bare = [TileArray(arg.axes, arg.array) for arg in args]
        found = self._folded(bare, types, env, model, noise)
        if exact.array.dtype.kind != "f":
            return found
        with np.errstate(all="ignore"):
            apart = self._more(env) ** 0.5 * (found.array - exact.array)
            same = (found.array == exact.array) | (exact.array != exact.array)
        return TileArray(exact.axes, np.where(same, exact.array, exact.array + apart))

    def _of_sum(
        self, arg: TileArray, kind: TileType, result: TileArray, model: ErrorModel
    ) -> Error | None:
        place = arg.axes.index(self.axis)
        dtype = compute_dtype(kind.dtype)
        if not self.keep:
            return reduced("sum", arg, result, dtype, (self.axis,), arg.array.shape[place], model)
        return running_sum(arg, result, dtype, place, self.backward, model)

    def _folded(
        self, args: Sequence[TileArray], types: Sequence[TileType], env: Environment,
        model: ErrorModel | None, noise: Noise | None = None,
    ) -> TileArray:  # fmt: skip
        """By halves (Hillis and Steele, 1986, where prefixes are kept), in the order of the axis,
        with errors if there is a model, or moved by these if there is noise."""
        union = tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))
        axes = (self.axis, *(axis for axis in union if axis != self.axis))
        shape = tuple(len(env.coordinates[axis]) for axis in axes)
        dtypes = [compute_dtype(kind.dtype) for kind in types]
        states = [_over(arg, axes, shape, env, model is not None) for arg in args]
        turn = slice(None, None, -1 if self.backward else 1)
        states = [first_part(state, turn) for state in states]
        steps = _Steps(self.how, dtypes, env, model, noise)
        if self.keep:
            found = first_part(steps.prefixes(states)[self.part], turn)
            return TileArray(union, found.aligned(union), found.error_over(union))
        found = steps.total(states)[self.part]
        order = tuple(axis for axis in union if axis != self.axis)
        last = without_first(found)
        return TileArray(order, last.aligned(order), last.error_over(order))

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        """Those of one merge at every point, shared among the states."""
        functions = [each for each in self.applied() if not each.startswith(CAST)]
        cost = sum(scalar_function(each).flops for each in functions)
        return volume(scope, union_axes(args)) * cost // self.how.states

    def applied(self) -> list[str]:
        """The functions of one merge."""
        found: list[str] = []
        none = [None] * self.how.states
        self.how.merged(none, none, lambda function, _: found.append(function), lambda _: None)
        return found

    def passes(self, extent: int) -> float:
        """How often the meaning passes over the operands, of so many points along the axis."""
        return len(self.applied()) * (max(1.0, np.log2(max(extent, 1))) if self.keep else 1.0)


def _like(tile: TileArray) -> str:
    """A dtype of the kind of an exact value: all that its meaning depends on."""
    return {"f": "f64", "b": "bool"}.get(tile.array.dtype.kind, "i64")


def _over(
    arg: TileArray, axes: tuple[str, ...], shape: tuple[int, ...], env: Environment, errors: bool
) -> TileArray:
    """The tile over all of `axes`, with its errors if these are wanted."""
    array = env.xp.broadcast_to(arg.aligned(axes), shape)
    error = arg.error_over(axes) if errors else None
    if error is not None:
        error = Error(whole(error.wide, shape, env.xp), whole(error.spread, shape, env.xp))
    return TileArray(axes, array, error)


class _Steps:
    """Folds states along their first axis; `dtypes` are those of the states."""

    def __init__(
        self, how: Merge, dtypes: Sequence[str], env: Environment, model: ErrorModel | None,
        noise: Noise | None = None,
    ) -> None:  # fmt: skip
        self.how, self.dtypes, self.env, self.model = how, list(dtypes), env, model
        self.noise = noise

    def prefixes(self, states: list[TileArray]) -> list[TileArray]:
        """The fold up to each point."""
        count, step = states[0].array.shape[0], 1
        while step < count:
            left = [first_part(state, slice(None, count - step)) for state in states]
            right = [first_part(state, slice(step, None)) for state in states]
            both = self.merged(left, right)
            first = [first_part(state, slice(None, step)) for state in states]
            states = self._behind(first, both)
            step *= 2
        return states

    def total(self, states: list[TileArray]) -> list[TileArray]:
        """The fold of all, with one point left along the first axis."""
        while self.env.xp is np and states[0].array.shape[0] >= 2 * (rows := _rows(states[0])):
            states = self._in_blocks(states, rows)
        return self._halved(states, 1)

    def _in_blocks(self, states: list[TileArray], rows: int) -> list[TileArray]:
        """The fold of each few neighbours, so many points at a time."""
        blocks = [
            self._halved([first_part(s, slice(low, low + rows)) for s in states], rows // _AHEAD)
            for low in range(0, states[0].array.shape[0], rows)
        ]
        return self._behind(*blocks)

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
        return [joined(of, of[0].axes[0], of[0].axes, self.env.xp) for of in each]

    def merged(self, left: Sequence[TileArray], right: Sequence[TileArray]) -> list[TileArray]:
        before, after = (list(zip(side, self.dtypes, strict=True)) for side in (left, right))
        with np.errstate(all="ignore"):
            found = self.how.merged(before, after, self._apply, self._number)
        return [
            self._as(tile, source, dtype)
            for (tile, source), dtype in zip(found, self.dtypes, strict=True)
        ]

    def _apply(self, function: str, args: list[_Typed]) -> _Typed:
        tiles, dtypes = [tile for tile, _ in args], [dtype for _, dtype in args]
        if function.startswith(CAST):
            dtype = function[len(CAST) :]
            return self._as(tiles[0], dtypes[0], dtype), dtype
        op = Map(function)
        dtype = op.infer([TileType((), dtype) for dtype in dtypes], self.env.scope).dtype
        types = [TileType((), dtype) for dtype in dtypes]
        exact = op.meaning(tiles, replace(self.env, types=types))
        if self.model is None:
            return exact, dtype
        error = op.error(tiles, types, exact, self.env, self.model)
        return self._off(exact, error, function), dtype

    def _number(self, value: float | int) -> _Typed:
        dtype = "i32" if type(value) is int else "f32"
        return Constant(value, dtype).meaning((), self.env), dtype

    def _as(self, tile: TileArray, source: str, dtype: str) -> TileArray:
        if source == dtype:
            return tile
        exact = Cast(dtype).meaning([tile], self.env)
        error = None if self.model is None else converted(tile, exact, source, dtype)
        return self._off(exact, error, dtype)

    def _off(self, exact: TileArray, error: Error | None, name: str) -> TileArray:
        """A result with its error, or moved by part of it."""
        if self.noise is not None:
            return self.noise.moved(exact, error, name)
        return TileArray(exact.axes, exact.array, error)


def _rows(state: TileArray) -> int:
    """Points along the first axis whose intermediate results stay in a cache."""
    count, size = state.array.shape[0], state.array.size
    return _AHEAD * max(1, int(_BLOCK * count // size // _AHEAD))


_Typed = tuple[TileArray, str]
