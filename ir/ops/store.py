"""store: write a tile to an output tensor, one axis per dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.ops.base import Environment, Error, Scope, TileArray, TileType
from ir.roundoff import ErrorModel


@dataclass(frozen=True, slots=True)
class Store:
    tensor: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "store"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        spec = scope.tensors.get(self.tensor)
        if spec is None:
            raise ProgramError(f"store {self.tensor}: no such tensor")
        if set(args[0].axes) - set(self.axes) or len(set(self.axes)) != len(self.axes):
            raise ProgramError(
                f"store {self.tensor}: value varies over {args[0].axes}, stored over {self.axes}"
            )
        if is_float(args[0].dtype) and not is_float(spec.dtype):
            raise ProgramError(
                f"store {self.tensor}: {args[0].dtype} into {spec.dtype}; cast first"
            )
        return TileType(self.axes, spec.dtype)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        shape = tuple(len(env.coordinates[axis]) for axis in self.axes)
        result = np.broadcast_to(args[0].aligned(self.axes), shape)
        return TileArray(self.axes, result)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return args[0].error_over(self.axes)

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0
