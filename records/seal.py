"""The seal of a SQLite file: a checksum over every byte of it, kept in its header.

Hashes vouch for rows, and the seal for everything else: headers, indexes, free room, the text of
the schema. It is set when a writer closes the store, and 0 while somebody may be writing. Knows
bytes, and nothing of tables. Source: the file format described at sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import zlib

OPEN = 0  # in the place of a seal
_HEADER = 100
_JOURNAL = slice(18, 20)  # how it is written to: set again whenever it is opened
_CHANGES = slice(24, 28)
_SEAL = slice(60, 64)  # `PRAGMA user_version`
_CHANGES_AGAIN = slice(92, 96)
_WRITER = slice(96, 100)  # the library's version
_MOST = 0xFFFF_FFFF


def seal_of(image: bytes, writer: int | None = None) -> int:
    """The seal that fits the bytes of a database, which is to be written by library `writer`.

    What opening and sealing change is not covered; see `breach`.
    """
    header = bytearray(image[:_HEADER])
    for field in (_JOURNAL, _CHANGES, _SEAL, _CHANGES_AGAIN):
        header[field] = bytes(field.stop - field.start)
    if writer is not None:
        header[_WRITER] = writer.to_bytes(4, "big")
    found = zlib.crc32(memoryview(image)[_HEADER:], zlib.crc32(header))
    # No single bit makes an open store of a sealed one.
    return found if found.bit_count() > 1 else found ^ _MOST


def stated(image: bytes) -> int:
    """The seal that the file states, or OPEN."""
    return int.from_bytes(image[_SEAL], "big")


def breach(image: bytes, *, strict: bool) -> str:
    """What is wrong with a sealed database, "" for nothing.

    With `strict`, the bytes that the seal does not cover must be as a writer leaves them.
    """
    if stated(image) != seal_of(image) or (strict and _is_odd(image)):
        return "its bytes do not match its seal: they are damaged, or another program changed them"
    return ""


def _is_odd(image: bytes) -> bool:
    journal = image[_JOURNAL]
    return image[_CHANGES] != image[_CHANGES_AGAIN] or journal not in (b"\1\1", b"\2\2")
