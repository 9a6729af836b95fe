"""before and recur: a state that each step along an axis makes of the state before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ir.dtypes import compute_dtype
from ir.errors import ProgramError
from ir.ops.base import Environment, Error, Scope, TileArray, TileType, volume
from ir.roundoff import ErrorModel


@dataclass(frozen=True, slots=True)
class Before:
    """At each point of `axis` the state before that step, over `axes`; at the first the argument.

    `label` tells states apart. What is computed from it, at its own point of the axis, is the step.
    """

    axis: str
    axes: tuple[str, ...]
    label: str
    name: ClassVar[str] = "before"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        what = f"state {self.label} along {self.axis}"
        if len(args) != 1:
            raise ProgramError(f"{what}: needs what it is at first")
        for axis in (self.axis, *self.axes):
            if axis not in scope.extents:
                raise ProgramError(f"{what}: unknown axis {axis!r}")
        if self.axis in self.axes or len(set(self.axes)) != len(self.axes):
            raise ProgramError(f"{what}: a state is over other axes than it goes along, each once")
        if set(args[0].axes) - set(self.axes):
            raise ProgramError(f"{what}: at first over {args[0].axes}, the state over {self.axes}")
        return TileType((self.axis, *self.axes), compute_dtype(args[0].dtype))

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        raise NotImplementedError("states are evaluated step by step by ir.oracle")

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        raise NotImplementedError("states are evaluated step by step by ir.oracle")

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Recur:
    """The state after the last step. Arguments: its `Before`, and the state after each step."""

    axis: str
    name: ClassVar[str] = "recur"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        what = f"recur along {self.axis}"
        if len(args) != 2 or args[0].axes[:1] != (self.axis,):
            raise ProgramError(f"{what}: takes a state along it and the state after each step")
        if set(args[1].axes) - set(args[0].axes):
            raise ProgramError(f"{what}: the state is over {args[0].axes}, its step {args[1].axes}")
        if compute_dtype(args[1].dtype) != args[0].dtype:
            raise ProgramError(f"{what}: the state is {args[0].dtype}, its step {args[1].dtype}")
        return TileType(args[0].axes[1:], args[0].dtype)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        raise NotImplementedError("states are evaluated step by step by ir.oracle")

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        raise NotImplementedError("states are evaluated step by step by ir.oracle")

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return volume(scope, result.axes)
