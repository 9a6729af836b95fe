"""fold: combine one or several tiles along an axis by an associative merge, or keep each prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ir.dtypes import compute_dtype, is_float
from ir.errors import ProgramError
from ir.merges import CAST, NAMED, Merge, merge_of
from ir.ops.base import (
    Amount,
    Array,
    Environment,
    Error,
    Scope,
    TileArray,
    TileType,
    union_axes,
    volume,
)
from ir.ops.map import Map
from ir.ops.merging import AHEAD, Merger, is_alike, prefix_passes
from ir.ops.parts import first_part, whole, without_first
from ir.perturbed import Noise
from ir.propagation_sums import reduced, running_sum
from ir.roundoff import ROUNDED, ErrorModel
from ir.scalar import scalar_function


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact states of a fold, and of a long one those of each few neighbours."""

    states: list[TileArray]
    ahead: list[TileArray]


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
        return self.states(args, _alike(args), env)[self.part]

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return self.states(args, types, env, model)[self.part].error

    def states(
        self, args: Sequence[TileArray], types: Sequence[TileType], env: Environment,
        model: ErrorModel | None = None,
    ) -> list[TileArray]:  # fmt: skip
        """All states; with a model, what right kernels may be off beside them.

        Of a sum that goes by the number of its terms; else it is that of a tree, as often as a
        kernel that goes one by one rounds more often than a tree.
        """
        like = _alike(args)
        if model is None:
            return self._folded(args, like, env, None)
        if self.merge == NAMED["sum"]:
            (total,) = self._folded(args, like, env, None)
            error = self._of_sum(args[0], types[0], total, model)
            return [TileArray(total.axes, total.array, error)]
        off = self._folded(args, types, env, model)
        alike = is_alike(self.merge, _dtypes(types), _dtypes(like))
        exact = off if alike else self._folded(args, like, env, None)
        return [
            TileArray(e.axes, e.array, self._more_often(o, kind, env))
            for e, o, kind in zip(exact, off, types, strict=True)
        ]

    def _more_often(self, found: TileArray, kind: TileType, env: Environment) -> Error | None:
        error = found.error
        if error is None or not is_float(compute_dtype(kind.dtype)):
            return error
        more = self._more(found.axes, env)
        return Error(error.wide * more, error.spread * more * more)

    def _more(self, axes: Sequence[str], env: Environment) -> Amount:
        """How much more often than a tree a kernel rounds that goes one by one: up to each point,
        or in all, by runs where there are many."""
        terms = len(env.coordinates[self.axis])
        if not self.keep:
            return _in_a_row(terms)
        counts = env.xp.arange(1.0, terms + 1.0)[:: -1 if self.backward else 1]
        more = counts / np.maximum(1.0, np.log2(counts))
        found: Array = more.reshape([-1 if axis == self.axis else 1 for axis in axes])
        return found

    def exact(self, args: Sequence[TileArray], env: Environment) -> Exact:
        """All states, for `drawn`."""
        axes, merger, states = self._prepared(args, _alike(args), env, None)
        ahead = list[TileArray]()
        if not self.keep and merger.is_sampled(states):
            states = ahead = merger.ahead(states)
        return Exact(self._ended(axes, merger, states), ahead)

    def drawn(
        self, args: Sequence[TileArray], types: Sequence[TileType], exact: Exact,
        env: Environment, model: ErrorModel, noise: Noise, name: str,
    ) -> list[TileArray]:  # fmt: skip
        """The `exact` states with the roundings of a run drawn: those of each merge of a tree, and
        as much more as random numbers add up to of which a kernel that goes one by one has more.

        Of a long row each of the lowest merges is drawn in one of the runs. They are as often as
        there are neighbours; it is the large states above them that a chain rounds at each step.
        """
        if self.merge == NAMED["sum"]:
            off = self._of_sum(args[0], types[0], exact.states[0], model)
            return [noise.moved(exact.states[0], off, name)]
        bare = [TileArray(arg.axes, arg.array) for arg in args]
        axes, merger, states = self._prepared(bare, types, env, model, noise)
        more = self._more(exact.states[0].axes, env) ** 0.5
        if not exact.ahead:
            found = self._ended(axes, merger, states)
            return [
                _further(one, (two, more)) for one, two in zip(exact.states, found, strict=True)
            ]
        still = Merger(self.merge, _dtypes(_alike(exact.ahead)), env, None)
        low = self._ended(axes, still, merger.partly(states, exact.ahead))
        high = self._ended(axes, merger, exact.ahead)
        less = _in_a_row(AHEAD) ** 0.5
        return [
            _further(one, (two, less), (three, more))
            for one, two, three in zip(exact.states, low, high, strict=True)
        ]

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
        model: ErrorModel | None,
    ) -> list[TileArray]:  # fmt: skip
        """By halves, in the order of the axis, with errors if there is a model."""
        return self._ended(*self._prepared(args, types, env, model))

    def _prepared(
        self, args: Sequence[TileArray], types: Sequence[TileType], env: Environment,
        model: ErrorModel | None, noise: Noise | None = None,
    ) -> tuple[tuple[str, ...], Merger, list[TileArray]]:  # fmt: skip
        """The axes of all operands, what merges them, and these as states in the order of the fold,
        whose axis comes first."""
        union = tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))
        axes = (self.axis, *(axis for axis in union if axis != self.axis))
        shape = tuple(len(env.coordinates[axis]) for axis in axes)
        states = [_over(arg, axes, shape, env, model is not None) for arg in args]
        turn = slice(None, None, -1 if self.backward else 1)
        states = [first_part(state, turn) for state in states]
        return union, Merger(self.merge, _dtypes(types), env, model, noise), states

    def _ended(
        self, union: tuple[str, ...], merger: Merger, states: list[TileArray]
    ) -> list[TileArray]:
        """What is left of states, or of each prefix of them."""
        if self.keep:
            turn = slice(None, None, -1 if self.backward else 1)
            found = [first_part(state, turn) for state in merger.prefixes(states)]
        else:
            found = [without_first(state) for state in merger.total(states)]
        order = union if self.keep else tuple(axis for axis in union if axis != self.axis)
        return [TileArray(order, one.aligned(order), one.error_over(order)) for one in found]

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
        merges = prefix_passes(extent) if self.keep else 1.0
        return len(self.applied()) * merges


def _in_a_row(terms: int) -> float:
    """How much more often than a tree of so many terms one rounds who adds them up one by one."""
    return float(ROUNDED["f32"].in_a_row(terms)) / max(1.0, float(np.log2(terms)))


def _alike(args: Sequence[TileArray]) -> list[TileType]:
    """Dtypes of the kind of exact values: all that their meaning depends on."""
    kinds = ({"f": "f64", "b": "bool"}.get(arg.array.dtype.kind, "i64") for arg in args)
    return [TileType(arg.axes, kind) for arg, kind in zip(args, kinds, strict=True)]


def _dtypes(types: Sequence[TileType]) -> tuple[str, ...]:
    return tuple(compute_dtype(kind.dtype) for kind in types)


def _further(exact: TileArray, *found: tuple[TileArray, Amount]) -> TileArray:
    """A result so many times as far from the exact one as what was found, of each of these."""
    if exact.array.dtype.kind != "f":
        return found[-1][0]
    array = exact.array
    with np.errstate(all="ignore"):
        for one, times in found:
            apart = times * (one.array - exact.array)
            same = (one.array == exact.array) | (exact.array != exact.array)
            array = np.where(same, array, array + apart)
    return TileArray(exact.axes, array)


def _over(
    arg: TileArray, axes: tuple[str, ...], shape: tuple[int, ...], env: Environment, errors: bool
) -> TileArray:
    """The tile over all of `axes`, with its errors if these are wanted."""
    array = env.xp.broadcast_to(arg.aligned(axes), shape)
    error = arg.error_over(axes) if errors else None
    if error is not None:
        error = Error(whole(error.wide, shape, env.xp), whole(error.spread, shape, env.xp))
    return TileArray(axes, array, error)
