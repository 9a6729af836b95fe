"""Which thread holds which element: spreads carried from the anchors over the whole dataflow.

Owns propagation in both directions and the anchors that are copies. It never overwrites what is
known: where two derivations disagree, planning (planner.py) finds the difference and converts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ir.layout.synthesis.copies import WIDTHS, Access, coalesced, unaligned
from ir.layout.synthesis.digits import Space, Spread, deal
from ir.layout.synthesis.memory import Placement, compact, global_placement
from ir.layout.synthesis.problem import Tile, TileOp, TileProgram

ELEMENTWISE = ("map", "cast", "fill")


@dataclass(frozen=True, slots=True)
class Origin:
    """Why a tile is spread as it is: the op that decided it, and in words."""

    op: int
    text: str


class Spreads:
    """Spreads of register tiles, each with its origin. `memories`: placements of global tiles."""

    def __init__(
        self, space: Space, program: TileProgram, memories: Mapping[str, Placement]
    ) -> None:
        self.space, self.program, self.memories = space, program, memories
        self.known: dict[str, Spread] = {}
        self.origin: dict[str, Origin] = {}
        self._tiles = {tile.name: tile for tile in program.tiles}

    def set(self, name: str, spread: Spread, op: int, text: str) -> bool:
        """Note a spread unless there is one already."""
        if name in self.known:
            return False
        self.known[name], self.origin[name] = spread, Origin(op, text)
        return True

    def propagate(self) -> None:
        """Carry what is known over every op, both ways, until nothing is new."""
        changed = True
        while changed:
            changed = False
            for position, op in enumerate(self.program.ops):
                changed = self._visit(position, op) or changed

    def _visit(self, position: int, op: TileOp) -> bool:
        output = self._tiles[op.outputs[0]]
        if op.kind in ELEMENTWISE:
            return self._elementwise(position, op, output)
        if op.kind == "reduce" and op.inputs[0] in self.known:
            spread = self.space.project(self.known[op.inputs[0]], output)
            text = f"{op.inputs[0]} without axis {op.attribute('axis')}"
            return self.set(output.name, spread, position, text)
        return False

    def _elementwise(self, position: int, op: TileOp, output: Tile) -> bool:
        changed = False
        if output.name not in self.known:
            whole = next(
                (
                    name
                    for name in op.inputs
                    if name in self.known and set(self._tiles[name].names) == set(output.names)
                ),
                None,
            )
            if whole is None:
                return False
            changed = self.set(
                output.name, self.known[whole], position, f"{op.kind} keeps {whole}'s owners"
            )
        for name in op.inputs:
            if name not in self.known:
                spread = self.space.project(self.known[output.name], self._tiles[name])
                self.set(name, spread, position, f"{op.kind} needs it beside {output.name}")
                changed = True
        return changed

    def anchor_copies(self) -> None:
        """Give every tile still open a spread: the copy that moves most bytes first, by a
        coalescing schedule, propagating after each."""
        self.propagate()
        while True:
            found = self._largest_copy()
            if found is None:
                break
            position, tile, other = found
            spread, text = self._schedule(tile, other, position)
            self.set(tile.name, spread, position, text)
            self.propagate()
        for tile in self.program.tiles:
            if tile.scope == "register" and tile.name not in self.known:
                self.set(
                    tile.name,
                    deal(self.space, self.space.digits(tile)),
                    -1,
                    "nothing asks anything of it",
                )
                self.propagate()

    def _largest_copy(self) -> tuple[int, Tile, Tile] | None:
        best: tuple[tuple[int, int, int], int, Tile, Tile] | None = None
        for position, op in enumerate(self.program.ops):
            if op.kind != "copy":
                continue
            source, target = self._tiles[op.inputs[0]], self._tiles[op.outputs[0]]
            for tile, other in ((source, target), (target, source)):
                if tile.scope != "register" or tile.name in self.known:
                    continue
                rank = (other.scope == "global", tile.size * tile.bits, -position)
                if best is None or rank > best[0]:
                    best = (rank, position, tile, other)
        return None if best is None else best[1:]

    def _schedule(self, tile: Tile, other: Tile, position: int) -> tuple[Spread, str]:
        memory, pinned = self.memory(other), dict(self.program.pins.instructions).get(position, "")
        rows_first = any(
            op.kind == "reduce" and tile.names == self._tiles[op.inputs[0]].names
            for op in self.program.ops
        )
        vector = pinned[3:] if pinned[:3] in ("ld.", "st.") else ""
        for width in WIDTHS:
            count = (width // tile.bits).bit_length() - 1
            if count < 0 or vector not in ("", str(width)):
                continue
            spread = coalesced(self.space, memory, count, rows_first)
            elements = spread.values[:count]
            if not memory.leads(elements) or len(elements) < count:
                continue
            access = Access(("ld",), width, elements, (), spread.threads)
            if other.scope == "global" and unaligned(self.space, other, memory, access):
                continue
            return spread, f"coalesced copy with {other.name}, {width} bits a thread"
        spread = coalesced(self.space, memory, 0, rows_first)
        return spread, f"copy with {other.name}, element by element"

    def memory(self, tile: Tile) -> Placement:
        """The placement of a global tile; of a shared one a guess: the axis first that is
        contiguous in the global memory it is copied from or to."""
        if tile.scope == "global":
            return self.memories[tile.name]
        for op in self.program.ops:
            names = (*op.inputs, *op.outputs)
            if op.kind == "copy" and tile.name in names:
                for name in names:
                    if name in self.memories:
                        order = self.memories[name].order
                        return compact(self.space, order)
        return compact(self.space, self.space.digits(tile))


def memories(space: Space, program: TileProgram) -> dict[str, Placement]:
    """Placements of all global tiles."""
    return {
        tile.name: global_placement(space, tile) for tile in program.tiles if tile.scope == "global"
    }
