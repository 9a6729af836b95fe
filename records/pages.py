"""Rows of a SQLite file, page by page, without the tree that leads to them: for broken files.

Only what stands on leaf pages of tables is found, whatever table it is of; the caller must tell
whether a row is sound. Source: the file format described at sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

Value = None | int | float | str | bytes
_LEAF = 13  # the first byte of a leaf page of a table
_FILE_HEADER = 100
_USUAL_SIZE = 4096
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes
_LONGEST = 1 << 20  # bytes of a row that are believed


def rows_of(path: Path) -> Iterator[tuple[Value, ...]]:
    """The columns of every row that can be decoded, in the order of the file."""
    if not path.stat().st_size:
        return
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size = _page_size(data)
        for start in range(0, len(data) - size + 1, size):
            header = start + (_FILE_HEADER if start == 0 else 0)
            if data[header] == _LEAF:
                yield from _page(data, size, start, header)


def _page_size(data: mmap.mmap) -> int:
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else _USUAL_SIZE


def _page(data: mmap.mmap, size: int, start: int, header: int) -> Iterator[tuple[Value, ...]]:
    cells = int.from_bytes(data[header + 3 : header + 5], "big")
    for number in range(min(cells, size // 4)):
        place = header + 8 + 2 * number
        offset = int.from_bytes(data[place : place + 2], "big")
        try:
            yield _row(_payload(data, size, start + offset))
        except (IndexError, ValueError, struct.error):
            continue  # what is not decoded is lost


def _payload(data: mmap.mmap, size: int, place: int) -> bytes:
    """The bytes of a cell, which begin on its page and may go on through a chain of others."""
    length, place = _number(data, place)
    _, place = _number(data, place)  # the row's own number
    if length > _LONGEST:
        raise ValueError("too long")
    most = size - 35
    least = (size - 12) * 32 // 255 - 23
    here = length
    if length > most:
        here = least + (length - least) % (size - 4)
        here = here if here <= most else least
    payload = bytearray(data[place : place + here])
    following = int.from_bytes(data[place + here : place + here + 4], "big")
    while len(payload) < length:
        page = (following - 1) * size
        if page < 0:
            raise ValueError("the chain ends early")
        following = int.from_bytes(data[page : page + 4], "big")
        more = data[page + 4 : page + size]
        if not more:
            raise ValueError("the chain leaves the file")
        payload += more[: length - len(payload)]
    return bytes(payload)


def _row(payload: bytes) -> tuple[Value, ...]:
    end, place = _number(payload, 0)
    kinds = []
    while place < end:
        kind, place = _number(payload, place)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        value, place = _value(payload, kind, place)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, kind: int, place: int) -> tuple[Value, int]:
    """The value of a serial type, and where the next one begins."""
    if kind == 0:
        return None, place
    if kind in (8, 9):
        return kind - 8, place
    if kind == 7:
        return float(struct.unpack_from(">d", payload, place)[0]), place + 8
    length = _INTEGERS[kind] if kind in _INTEGERS else (kind - 12) // 2
    content = payload[place : place + length]
    if length < 0 or len(content) < length:
        raise ValueError("the row ends early")
    if kind in _INTEGERS:
        return int.from_bytes(content, "big", signed=True), place + length
    return (content.decode() if kind % 2 else content), place + length


def _number(data: bytes | mmap.mmap, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where the next thing begins."""
    value = 0
    for count in range(8):
        byte = data[place + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + count + 1
    return value << 8 | data[place + 8], place + 9
