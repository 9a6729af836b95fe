"""Packed files, unpacked no further than they may be: a few kilobytes can hold gigabytes of zeros.

Knows no record and no form.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

PIECE = 1 << 20
MEMORY = 192 << 20  # of the decoder: the strongest preset of xz takes 65 MiB
SMALL = 64 << 20  # what any file may unpack to
RATIO = 200  # and how many times its own size, beyond that; records pack about 25 to 1
LARGEST = 8 << 30


class Unpackable(Exception):
    """A packed file that is damaged, or larger unpacked than it may be; one line."""


def most_of(size: int) -> int:
    """How many bytes a packed file of `size` may unpack to."""
    return min(LARGEST, max(SMALL, RATIO * size))


def unpacked(path: Path, most: int | None = None) -> Iterator[bytes]:
    """The content of an .xz file in pieces; raises Unpackable, OSError."""
    most = most_of(path.stat().st_size) if most is None else most
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MEMORY)
    told = 0
    with open(path, "rb") as stream:
        while not decoder.eof:
            data = stream.read(PIECE) if decoder.needs_input else b""
            if decoder.needs_input and not data:
                raise Unpackable("it ends early")
            try:
                piece = decoder.decompress(data, PIECE)
            except lzma.LZMAError as error:
                raise Unpackable(str(error)) from None
            told += len(piece)
            if told > most:
                raise Unpackable(
                    f"it unpacks to more than {most >> 20:,} MiB, which nothing of its size should"
                )
            yield piece
        if decoder.unused_data or stream.read(1):
            raise Unpackable("more follows after its end")
