"""Tiles that clusters share as a stream: what they ask of a schedule, what they save and cost.

Columns of many schedules at a time; `stream_k` has the way in which they are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision, columns_of
from ir.dtypes import dtype_of
from ir.ops.store import Store
from ir.rewrite.domain import is_narrowed
from ir.schedule import Value
from ir.space import Constraint
from ir.stages import is_reduction
from ir.targets.cuda.grid.stream_k import ALL, NAME, NONE, REST, WAVE, stream_decision
from ir.targets.cuda.space.splits import WHOLE
from ir.targets.cuda.space.tensor_rules import TensorRules
from ir.targets.cuda.space.tensor_tiles import CLUSTERS

POOR = 0.93  # share of its waves that a grid fills, below which a seed shares what is left over
ROOMY = 160  # registers of sums beside which there is room for another piece's
SUM_BYTES = 4
IDLE = 0.5  # of the processors, that have a tile where they are few
LARGE = 8  # seeds, the first ones, whose tiles are worth cutting


class TensorStreams(TensorRules):
    """A kernel's tiles as a stream of blocks."""

    @cached_property
    def may_stream(self) -> bool:
        """Whether products are all that is summed, over equally many blocks in all tiles."""
        products = {product.position for product in self.roles.outer}
        sums = {n for n, node in enumerate(self.program.nodes) if is_reduction(node)}
        narrowed = any(is_narrowed(self.program, axis) for axis in self.roles.walked)
        plain = self.roles.handed is None and not self.roles.inner
        return sums == products and plain and not narrowed

    def stream_decisions(self) -> list[Decision]:
        """The decision, where there is a choice."""
        return [stream_decision(self.name(NAME), self.roles.walked[0])] if self.may_stream else []

    def stream_constraints(self) -> list[Constraint]:
        if not self.may_stream:
            return []
        rules = (
            (NAME, "shared tiles are left over by waves of clusters, each of which has a block",
             self._leaves_tiles, self._stream_numbers),
            (f"{NAME}.split", "a sum is split into parts or shared as a stream, not both",
             self._not_split, _split_words),
        )  # fmt: skip
        return [
            Constraint(self.name(name), needs, check, explain)
            for name, needs, check, explain in rules
        ]

    def _streams(self, columns: Columns, choice: str) -> Any:
        name = self.name(NAME)
        if name not in columns:
            return np.full(columns.rows, choice == NONE)
        return columns.is_(name, choice)

    def _clusters(self, columns: Columns) -> Any:
        """Clusters that walk all tiles; 1 where every tile has one of its own."""
        sizes = {name: prod(map(int, name.split("x"))) for name in CLUSTERS}
        size = np.maximum(columns.lookup(self.name("cluster"), sizes), 1)
        return np.maximum(self._value(columns, "processors") // size, 1)

    def _shared(self, columns: Columns) -> Any:
        """Tiles whose blocks are shared."""
        tiles, clusters = self._stream_tiles(columns), self._clusters(columns)
        rest = tiles % clusters
        wave = self._streams(columns, WAVE) * np.minimum(rest + clusters, tiles)
        return self._streams(columns, REST) * rest + wave + self._streams(columns, ALL) * tiles

    def _stream_blocks(self, columns: Columns) -> Any:
        """Blocks of a tile's sum."""
        return self._tile_count(columns, self.roles.walked)

    def _leaves_tiles(self, columns: Columns) -> Any:
        tiles, clusters = self._stream_tiles(columns), self._clusters(columns)
        waves = tiles // clusters
        passed = (self._value(columns, "processors") > 0) & (tiles % clusters > 0)
        passed &= (waves >= 1) | ~self._streams(columns, WAVE)
        passed &= (waves >= 2) | ~self._streams(columns, ALL)
        passed &= self._shared(columns) * self._stream_blocks(columns) >= clusters
        return self._streams(columns, NONE) | passed

    def _stream_numbers(self, values: Mapping[str, Value]) -> str:
        found = self._columns_of(values)
        numbers = (self._stream_tiles(found), self._clusters(found), self._stream_blocks(found))
        tiles, clusters, blocks = (int(np.max(number)) for number in numbers)
        choice = values[self.name(NAME)]
        if not values[self.name("processors")]:
            return f"{NAME} {choice}: every one of {tiles} tiles has blocks of its own"
        return (
            f"{NAME} {choice}: {tiles} tiles of {blocks} blocks for {clusters} clusters are "
            f"{tiles // clusters} waves and {tiles % clusters} tiles"
        )

    def _not_split(self, columns: Columns) -> Any:
        if "split" not in columns:
            return np.ones(columns.rows, dtype=bool)
        return self._streams(columns, NONE) | columns.is_("split", WHOLE)

    # -- what it is worth

    def streamed_rounds(self, columns: Columns) -> Any:
        """Tiles that each cluster walks, with fractions, where it walks a stream; else 0."""
        rounds = self._stream_tiles(columns) / self._clusters(columns)
        return np.where(self._streams(columns, NONE), 0.0, rounds)

    def pieces(self, columns: Columns) -> Any:
        """Pieces of a shared tile, the most; 0 where none is shared."""
        shared = np.asarray(self._shared(columns), dtype=np.float64)
        most = 1.0 + np.ceil(self._clusters(columns) / np.maximum(shared, 1.0))
        return np.where(shared > 0, most, 0.0)

    def with_streams(self, seeds: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Seeds, and of large tiles that leave much of their last wave empty the same with shared
        tiles behind the large ones; at the end those of tiles that are too few for half of the
        processors.

        Not of sums that leave no registers for those of another piece, where outputs are as wide.
        """
        if not self.may_stream or not seeds:
            return seeds
        decisions = self.decisions()
        columns = columns_of(decisions, seeds)
        clusters = self._clusters(columns)
        waves = self._stream_tiles(columns) / clusters
        poor = (waves < POOR * np.ceil(waves)) & (clusters > 1)
        stores = [node for node in self.program.nodes if isinstance(node.op, Store)]
        if any(dtype_of(node.dtype).bytes >= SUM_BYTES for node in stores):
            poor &= np.asarray(self._accumulators(columns)) <= ROOMY
        ways = ((REST,), (REST, WAVE))
        large = [
            {**seed, self.name(NAME): way}
            for seed, here, filled in zip(seeds[:LARGE], poor, waves > 1, strict=False)
            for way in (ways[int(filled)] if here else ())
        ]
        idle = np.flatnonzero(poor & (waves < IDLE))
        few = [{**seeds[n], self.name(NAME): REST} for n in idle[idle >= LARGE][:LARGE]]
        return seeds[:LARGE] + large + seeds[LARGE:] + few


def _split_words(values: Mapping[str, Value]) -> str:
    return f"split {values.get('split', WHOLE)}"
