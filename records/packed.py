"""Packed files, unpacked no further than they may be: a few kilobytes can hold gigabytes of zeros.

Knows no record and no form.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

PIECE = 1 << 20
MEMORY = 192 << 20  # of the decoder: the strongest preset of xz takes 65 MiB
SMALL = 64 << 20  # what any file may unpack to
RATIO = 200  # and how many times its own size, beyond that; records pack about 25 to 1
LARGEST = 8 << 30
GZIP = b"\x1f\x8b"  # what every member of such a file begins with


class Unpackable(Exception):
    """A packed file that is damaged, or larger unpacked than it may be; one line."""


def most_of(size: int) -> int:
    """How many bytes a packed file of `size` may unpack to."""
    return min(LARGEST, max(SMALL, RATIO * size))


class _Decoder(Protocol):
    """What of a packed file is read piece by piece."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """A gzip file's decoder with the interface of lzma's; of several members one after the other,
    which is a gzip file too."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._member.eof and not self._member.unused_data.startswith(GZIP)

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail and not self._member.unused_data

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data.strip(b"\0")  # tapes are filled up with zeros

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        rest = self._member.unconsumed_tail
        if self._member.eof:
            rest, self._member = self._member.unused_data, zlib.decompressobj(wbits=31)
        return self._member.decompress(rest + data, max_length)


def _decoder(path: Path) -> _Decoder:
    if path.suffix.lower() == ".gz":
        return _Gzip()
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MEMORY)


def unpacked(path: Path, most: int | None = None) -> Iterator[bytes]:
    """The content of an .xz or .gz file in pieces; raises Unpackable, OSError."""
    most = most_of(path.stat().st_size) if most is None else most
    decoder = _decoder(path)
    told = 0
    with open(path, "rb") as stream:
        while not decoder.eof:
            data = stream.read(PIECE) if decoder.needs_input else b""
            if decoder.needs_input and not data:
                raise Unpackable("it ends early")
            try:
                piece = decoder.decompress(data, PIECE)
            except (lzma.LZMAError, zlib.error) as error:
                raise Unpackable(str(error)) from None
            told += len(piece)
            if told > most:
                raise Unpackable(
                    f"it unpacks to more than {most >> 20:,} MiB, which nothing of its size should"
                )
            yield piece
        if decoder.unused_data or stream.read(1).strip(b"\0"):
            raise Unpackable("more follows after its end")
