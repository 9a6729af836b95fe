"""contract and reduce: combine a tile over axes. A contract is a sum of products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ir.dtypes import compute_dtype, dtype_of, is_float
from ir.errors import ProgramError
from ir.ops.base import Environment, Error, Scope, TileArray, TileType, union_axes, volume
from ir.ops.product import product_sum
from ir.propagation_sums import contracted, reduced
from ir.roundoff import ErrorModel
from ir.scalar import COMBINES, LOWEST


def _without(axes: tuple[str, ...], over: tuple[str, ...], what: str) -> tuple[str, ...]:
    missing = [axis for axis in over if axis not in axes]
    if missing:
        raise ProgramError(f"{what}: axis {missing[0]!r} is not an axis of the operands {axes}")
    if len(set(over)) != len(over):
        raise ProgramError(f"{what}: over {over}; an axis is reduced once")
    if not over:
        raise ProgramError(f"{what}: no axis to reduce over")
    return tuple(axis for axis in axes if axis not in over)


def _refuse_unknown(what: str, kind: str) -> None:
    if kind not in COMBINES:
        raise ProgramError(f"{what}: unknown kind {kind!r}: known are {', '.join(COMBINES)}")


def _refuse_empty(what: str, kind: str, over: Sequence[str], scope: Scope) -> None:
    """Sums and products of nothing are 0 and 1; an extreme of nothing is no number."""
    for axis in over:
        if kind in ("max", "min") and scope.extents.get(axis) == 0:
            raise ProgramError(f"{what} {kind}: axis {axis} has extent 0, which has no {kind}")


def _terms(over: Sequence[str], env: Environment) -> int:
    return math.prod(len(env.coordinates[axis]) for axis in over)


_METHODS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
}  # by array libraries


@dataclass(frozen=True, slots=True)
class Contract:
    """Sum over `over` of the product of two tiles, accumulated in dtype `acc`."""

    over: tuple[str, ...]
    acc: str = "f32"
    name: ClassVar[str] = "contract"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        if len(args) != 2:
            raise ProgramError(f"contract: {len(args)} operands, needs 2")
        if is_float(self.acc) != (is_float(args[0].dtype) or is_float(args[1].dtype)):
            raise ProgramError(
                f"contract: {args[0].dtype} x {args[1].dtype} does not accumulate in {self.acc}"
            )
        return TileType(_without(union_axes(args), self.over, "contract"), self.acc)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        return product_sum(args[0], args[1], self.over)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return contracted(args, types, result, self.over, self.acc, _terms(self.over, env), model)

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 2 * volume(scope, union_axes(args))


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine (`kind` is a row of `ir.scalar.COMBINES`) a tile over `over`."""

    kind: str
    over: tuple[str, ...]
    name: ClassVar[str] = "reduce"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        _refuse_unknown("reduce", self.kind)
        axes = _without(args[0].axes, self.over, f"reduce {self.kind}")
        _refuse_empty("reduce", self.kind, self.over, scope)
        return TileType(axes, compute_dtype(args[0].dtype))

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        where = tuple(args[0].axes.index(axis) for axis in self.over)
        with np.errstate(all="ignore"):
            result = _METHODS[self.kind](args[0].array, axis=where)
        if args[0].array.dtype.kind == "b":  # of which numpy has counts
            result = result != 0
        return TileArray(tuple(a for a in args[0].axes if a not in self.over), result)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        dtype = compute_dtype(types[0].dtype)
        terms = _terms(self.over, env)
        return reduced(self.kind, args[0], result, dtype, self.over, terms, model)

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return volume(scope, args[0].axes)


@dataclass(frozen=True, slots=True)
class Carry:
    """A reduction over the streamed `axis` whose body may read other carries' running values.

    Arguments: body, then `factor` and `addend` if flagged. When a carry that the body depends on
    moves from its prior to its new running value, the state becomes factor * state + addend, and
    only then the body (evaluated at the new values) is combined in. Factor and addend read
    `Prior` and `Now` of other carries; they do not vary over `axis`. Axes `beside` it are streamed
    together with it: their points are gone through one by one around those of `axis`.
    """

    kind: str
    axis: str
    factor: bool = False
    addend: bool = False
    beside: tuple[str, ...] | None = None
    name: ClassVar[str] = "carry"

    @property
    def over(self) -> tuple[str, ...]:
        """All axes that are gone."""
        return (*(self.beside or ()), self.axis)

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        _refuse_unknown("carry", self.kind)
        if len(args) != 1 + self.factor + self.addend:
            raise ProgramError(f"carry {self.kind}: {len(args)} operands")
        axes = _without(args[0].axes, self.over, f"carry {self.kind}")
        _refuse_empty("carry", self.kind, self.over, scope)
        for arg in args[1:]:
            if {*self.over} & {*arg.axes}:
                gone = " and ".join(self.over)
                raise ProgramError(f"carry {self.kind}: rescaling varies over {gone}")
        return TileType(axes, compute_dtype(args[0].dtype))

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        raise NotImplementedError("carries are evaluated in blocks by ir.oracle")

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        raise NotImplementedError("carries are evaluated in blocks by ir.oracle")

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return volume(scope, args[0].axes)


def start_of(kind: str, dtype: str) -> int | float:
    """What a carry's readers find before its first block: finite, so rescaling never gives NaN."""
    identity = COMBINES[kind].identity
    if is_float(dtype):
        return min(max(identity, LOWEST), -LOWEST)
    bits = dtype_of(dtype).bits - 1
    return int(min(max(identity, -(2**bits)), 2**bits - 1))


@dataclass(frozen=True, slots=True)
class Now:
    """The running value of a carry inside its loop (argument: the carry)."""

    name: ClassVar[str] = "now"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        return args[0]

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        return args[0]

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return args[0].error

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Prior(Now):
    """The value of a carry before the current block was combined in (argument: the carry)."""

    name: ClassVar[str] = "prior"
