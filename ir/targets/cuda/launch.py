"""What a kernel's text needs to be launched, as values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any


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
    facts: tuple[tuple[str, int | float | str], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "grid": [self.grid, 1, 1],
            "block": self.block,
            "cluster": [self.cluster, 1, 1],
            "shared": self.shared,
            "parameters": [parameter.to_json() for parameter in self.parameters],
            "zero": [list(part) for part in self.zero],
            "early": self.early,
        }


def placed(launch: Launch, places: dict[str, int]) -> Launch:
    """The launch with tensors in `places` (byte offsets) taken from the workspace."""
    parameters = tuple(
        replace(p, argument="workspace", offset=places[p.argument] + p.offset)
        if p.argument in places
        else p
        for p in launch.parameters
    )
    return replace(launch, parameters=parameters)


def plan_json(
    launches: Sequence[Launch], arch: str, workspace: int, clean: Sequence[tuple[int, int]]
) -> str:
    """`clean`: (offset, bytes) of the workspace that are zero before the first run."""
    plan = {
        "arch": arch,
        "options": [],
        "workspace_bytes": workspace,
        "clean": [list(part) for part in clean],
        "kernels": [launch.to_json() for launch in launches],
    }
    return json.dumps(plan, separators=(",", ":"))
