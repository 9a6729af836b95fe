"""What a kernel's text needs to be launched, as values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from ir.errors import Refusal
from ir.layout.errors import LayoutError
from ir.layout.instructions.tma import TensorMap, refusals

_MODES = {0: "none", 32: "32B", 64: "64B", 128: "128B"}
_STORED = {"u32": "i32", "u16": "bf16", "u64": "i64"}  # types that TMA copies as others


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: a pointer, or (with `box`) a tensor map of the tensor there.

    dims, strides and box stand innermost first; strides in bytes, without the innermost.
    """

    argument: str
    offset: int = 0
    dtype: str = ""
    dims: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    box: tuple[int, ...] = ()
    swizzle: int = 0
    l2: int = 256

    @property
    def tensor_map(self) -> TensorMap:
        """The map as the layout library judges it."""
        dtype = _STORED.get(self.dtype, self.dtype)
        return TensorMap(dtype, self.dims, self.strides, self.box, _MODES[self.swizzle])

    def to_json(self) -> dict[str, Any]:
        if not self.box:
            return {"kind": "pointer", "argument": self.argument, "offset": self.offset}
        return {"kind": "map", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of the workspace that a kernel has to itself, passed as parameter `argument`.

    A `clean` room is zero before the first run, and every run leaves it so.
    """

    argument: str
    bytes: int
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel: its text (without the prelude) and how it is launched."""

    name: str
    text: str
    grid: int
    block: int
    shared: int
    parameters: tuple[Parameter, ...]
    cluster: int = 1
    zero: tuple[tuple[int, int], ...] = ()
    rooms: tuple[Room, ...] = ()
    early: bool = False  # starts while the kernel before it in the stream ends
    cooperative: bool = False  # its blocks wait for each other: all of them run at a time
    facts: tuple[tuple[str, int | float | str], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        found = {
            "name": self.name,
            "grid": [self.grid, 1, 1],
            "block": self.block,
            "cluster": [self.cluster, 1, 1],
            "shared": self.shared,
            "parameters": [parameter.to_json() for parameter in self.parameters],
            "zero": [list(part) for part in self.zero],
            "early": self.early,
        }
        return found | ({"cooperative": True} if self.cooperative else {})


def placed(launch: Launch, places: dict[str, int]) -> Launch:
    """The launch with tensors in `places` (byte offsets) taken from the workspace."""
    parameters = tuple(
        replace(p, argument="workspace", offset=places[p.argument] + p.offset)
        if p.argument in places
        else p
        for p in launch.parameters
    )
    return replace(launch, parameters=parameters)


def map_faults(parameter: Parameter) -> tuple[LayoutError, ...]:
    """Everything for which the driver would refuse the tensor map of a parameter."""
    return _faults(parameter.tensor_map, parameter.offset) if parameter.box else ()


@lru_cache(maxsize=1024)
def _faults(tensor: TensorMap, offset: int) -> tuple[LayoutError, ...]:
    try:
        return refusals(tensor, offset)
    except LayoutError as error:
        return (error,)


def plan_json(
    launches: Sequence[Launch], arch: str, workspace: int, clean: Sequence[tuple[int, int]]
) -> str:
    """`clean`: (offset, bytes) of the workspace that are zero before the first run.

    Refusal "map" for a tensor map that the driver would refuse.
    """
    for launch in launches:
        for parameter in launch.parameters:
            for fault in map_faults(parameter):
                raise Refusal("map", f"{launch.name}, {parameter.argument}: {fault}")
    plan = {
        "arch": arch,
        "options": [],
        "workspace_bytes": workspace,
        "clean": [list(part) for part in clean],
        "kernels": [launch.to_json() for launch in launches],
    }
    return json.dumps(plan, separators=(",", ":"))
