"""What is asked of a shared tile, and what is answered: uses, decisions, choices. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from ir.layout.synthesis.bulk import Boxes, Canonical, SharedOperand
from ir.layout.synthesis.copies import Access
from ir.layout.synthesis.digits import Spread
from ir.layout.synthesis.gemm import Rejection
from ir.layout.synthesis.memory import Placement
from ir.layout.synthesis.problem import Tile

AxisOrder = tuple[tuple[str, tuple[int, ...]], ...]
"""(axis, its digits in the order in which some instruction counts them), for some axes."""


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """A copy between the tile and a register tile of this spread; `load`: towards registers."""

    op: int
    spread: Spread
    load: bool
    pinned: str = ""


@dataclass(frozen=True, slots=True)
class GlobalUse:
    """A copy between the tile and a global tile; `load`: towards shared memory."""

    op: int
    tile: Tile
    memory: Placement
    load: bool
    pinned: str = ""


@dataclass(frozen=True, slots=True)
class OperandUse:
    """wgmma reads the tile by descriptor."""

    op: int
    operand: SharedOperand
    majors: tuple[str, ...]


Use = RegisterUse | GlobalUse | OperandUse
Decision = Access | Boxes | Canonical


@dataclass(frozen=True, slots=True)
class SharedChoice:
    """A placement with one decision for each use. `cycles` of all uses together and of `each`;
    `ways`: worst bank conflict of each; `rejections`: (op, what was passed over) on the way."""

    placement: Placement
    decisions: tuple[Decision, ...]
    cycles: float
    each: tuple[float, ...]
    ways: tuple[int, ...]
    rejections: tuple[tuple[int, Rejection], ...]
