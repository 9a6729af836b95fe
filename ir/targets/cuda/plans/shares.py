"""What the warp groups and blocks of a kernel on tensor cores have of a tile, and of each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.program import Program
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid import stream_k
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.layouts.stored import StoredTile
from ir.targets.cuda.layouts.synthesised import ROWS
from ir.targets.cuda.plans.sides import Side, side
from ir.targets.cuda.space.splits import CLUSTER

BESIDE_SUMS = 26  # registers that an instruction takes beside its sums, as ptxas (13.0) says


def pieces_of(columns: int, registers: int) -> int:
    """The fewest equal parts of columns of which each is an instruction that so many registers
    hold.

    >>> [pieces_of(256, 168), pieces_of(256, 128), pieces_of(192, 96)]
    [1, 2, 2]
    """
    parts = (n for n in range(1, columns // 8 + 1) if columns % (8 * n) == 0)
    fitting = (n for n in parts if columns // n // 2 + BESIDE_SUMS <= registers)
    return next(fitting, columns // 8)


class Shares:
    """Properties of a plan."""

    program: Program
    roles: Roles
    tiles: Mapping[str, int]
    consumers: int
    partition: str
    cluster: tuple[int, int]
    parts: int
    merge: str
    stream_k: str
    formers: int
    weights: int

    @cached_property
    def tile_rows(self) -> int:
        return prod(self.tiles[axis] for axis in self.roles.rows)

    @cached_property
    def column_axis(self) -> str:
        """The column axis that is tiled."""
        tiled = [axis for axis in self.roles.columns if self.tiles[axis] > 1]
        if len(tiled) > 1:
            raise Refusal("columns", "one column axis is tiled")
        return tiled[0] if tiled else self.roles.columns[-1]

    @property
    def tile_columns(self) -> int:
        return self.tiles[self.column_axis]

    @cached_property
    def block(self) -> Side:
        """The summed points of one block."""
        return side(self.roles.walked, self.tiles)

    @property
    def shared_sums(self) -> bool:
        """Whether several blocks have parts of one tile's sums."""
        return self.parts > 1 or self.stream_k != stream_k.NONE

    @property
    def cooperative(self) -> bool:
        return self.partition != "whole"

    @property
    def group_rows(self) -> int:
        return self.tile_rows // (self.consumers if self.partition == "rows" else 1)

    @property
    def group_columns(self) -> int:
        return self.tile_columns // (self.consumers if self.partition == "columns" else 1)

    @property
    def shared_words(self) -> bool:
        """Whether computed operands of outer products lie in shared memory: consumers have columns
        of these each, and make some columns of the inner ones or have them of another group."""
        return bool(self.roles.inner) and self.partition == "columns"

    @property
    def apart(self) -> bool:
        """Whether a group of its own makes what the sums of a chain are multiplied by."""
        return self.weights > 0

    @property
    def group_walk(self) -> int:
        """Columns of inner products that a group of a block computes."""
        parts = self.consumers if self.shared_words and not self.apart else 1
        return self.block.size // parts

    @cached_property
    def words(self) -> StoredTile:
        """A computed operand in shared memory."""
        dtype = dtype_of(self.program.nodes[self.roles.outer[0].a].dtype)
        return StoredTile(self.tile_rows, self.tiles[self.roles.main_walk], dtype.bytes)

    @property
    def column_pieces(self) -> int:
        """Instructions that outer products have along a group's columns: one, but where a thread
        begins with fewer registers than that takes."""
        entry = 65536 // self.threads // 8 * 8
        return pieces_of(self.group_columns, entry) if self.apart else 1

    @property
    def row_blocks(self) -> int:
        return self.group_rows // ROWS

    @property
    def threads(self) -> int:
        return GROUP * (1 + self.consumers + self.others)

    @property
    def others(self) -> int:
        """Warp groups beside the one that copies and those that have sums."""
        return self.formers + self.apart

    @property
    def cluster_size(self) -> int:
        """Blocks that share operands."""
        return self.cluster[0] * self.cluster[1]

    @property
    def exchanges(self) -> bool:
        """Whether the parts of a sum meet in a cluster, where each block finishes some columns."""
        return self.parts > 1 and self.merge == CLUSTER

    @property
    def cluster_parts(self) -> int:
        return self.parts if self.exchanges else 1

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster: for each part of a sum, those that share operands."""
        return self.cluster_size * self.cluster_parts
