"""Lines of a tile in shared memory: one layout, of which all of a tile's addresses are made.

A tile is a row of panels; a panel has a line for each point of one side, and is swizzled by itself.
Emits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.layout.addresses import address, swizzled
from ir.layout.expressions import Expression, quotient, remainder, scaled, total
from ir.layout.instructions.descriptor import CHUNK, GROUP, SPAN, TYPE_FIELD, Descriptor
from ir.layout.layout import Layout
from ir.layout.swizzle import PLAIN, Composed, Swizzle

MODE_OF_WIDTH = {SPAN[mode]: mode for mode in TYPE_FIELD if SPAN[mode] > CHUNK}


def line_swizzle(width: int) -> Swizzle:
    """TMA's swizzle over so many bytes of a line; 0 for none."""
    return Swizzle((width // CHUNK).bit_length() - 1, 4, 3) if width else PLAIN


@dataclass(frozen=True, slots=True)
class TileLines:
    """`count` lines of `width` bytes in a panel, and how its bytes are exchanged."""

    count: int
    width: int
    swizzle: Swizzle = PLAIN

    @property
    def layout(self) -> Layout:
        """(line, (byte of a panel's line, panel)) -> byte before the swizzle; panels go on."""
        return Layout((self.count, (self.width, 1)), (self.width, (1, self.count * self.width)))

    @property
    def pattern(self) -> int:
        """Bytes after which the swizzle repeats."""
        return self.swizzle.pattern

    def offset(self, line: Expression, byte: Expression) -> Expression:
        """Where a byte of a line lies; bytes count on from panel to panel."""
        return _offset(self, line, byte)

    def start(self, line: int, byte: int) -> int:
        """The same before the swizzle, which acts on whole addresses where instructions read."""
        lines, bytes_of_lines = self.layout.modes
        return lines(line) + bytes_of_lines(byte)

    def moved(self, line: Expression, byte: Expression) -> tuple[Expression, Expression]:
        """How a place moves by lines and bytes that share no bit with it: what is XORed into it,
        of a pattern of the swizzle, and what is added."""
        return _moved(self, line, byte)

    def descriptor(self, inside: bool) -> Descriptor:
        """How wgmma finds the lines, which run along the sum (`inside`) or across it."""
        leading = CHUNK if inside else self.start(0, self.width)
        return Descriptor(0, leading, self.start(GROUP, 0), MODE_OF_WIDTH[self.width])


@lru_cache(maxsize=4096)
def _offset(lines: TileLines, line: Expression, byte: Expression) -> Expression:
    panel = Layout((lines.count, lines.width), (lines.width, 1))
    inside = Composed(lines.swizzle, 0, panel)
    return total(
        address(inside, line, remainder(byte, lines.width)),
        scaled(quotient(byte, lines.width), panel.size),
    )


@lru_cache(maxsize=4096)
def _moved(lines: TileLines, line: Expression, byte: Expression) -> tuple[Expression, Expression]:
    whole, pattern = address(lines.layout, line, byte), lines.pattern
    exchanged = swizzled(lines.swizzle, remainder(whole, pattern))
    return exchanged, scaled(quotient(whole, pattern), pattern)
