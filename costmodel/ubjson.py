"""UBJSON (ubjson.org, draft 12), as far as trees are written in it: to Python values and back.

Arrays of one type of number are numpy's. Bytes may be a stranger's: nothing is allocated that the
bytes do not fill.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = Any  # None, bool, int, float, str, list, dict or an array
_DEEPEST = 16
_NUMBERS = {
    b"i": struct.Struct(">b"),
    b"U": struct.Struct(">B"),
    b"I": struct.Struct(">h"),
    b"l": struct.Struct(">i"),
    b"L": struct.Struct(">q"),
    b"d": struct.Struct(">f"),
    b"D": struct.Struct(">d"),
}
_ARRAYS = {
    mark: np.dtype(code)
    for mark, code in (
        (b"i", "i1"), (b"U", "u1"), (b"I", ">i2"), (b"l", ">i4"), (b"L", ">i8"),
        (b"d", ">f4"), (b"D", ">f8"),
    )
}  # fmt: skip
_MARKS = {dtype: mark for mark, dtype in _ARRAYS.items()}
_WORDS = {b"Z": None, b"T": True, b"F": False}


class Malformed(ValueError):
    """Bytes that are no UBJSON."""


def decode(data: bytes) -> Value:
    """The one value that `data` is; raises Malformed."""
    reader = _Reader(data)
    try:
        found = reader.value(reader.take(1), 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None
    if reader.place != len(data):
        raise Malformed("more follows after its end")
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, count: int) -> bytes:
        end = self.place + count
        if count < 0 or end > len(self.data):
            raise Malformed("it ends early")
        found = self.data[self.place : end]
        self.place = end
        return found

    def value(self, mark: bytes, depth: int) -> Value:
        if depth > _DEEPEST:
            raise Malformed("it is nested too deeply")
        if mark in _NUMBERS:
            return self._number(mark)
        if mark == b"S":
            return self._text()
        if mark == b"{":
            return self._object(depth)
        if mark == b"[":
            return self._array(depth)
        if mark in _WORDS:
            return _WORDS[mark]
        raise Malformed(f"{mark!r} begins no value")

    def _number(self, mark: bytes) -> int | float:
        form = _NUMBERS[mark]
        (found,) = form.unpack(self.take(form.size))
        return found  # type: ignore[no-any-return]

    def _count(self) -> int:
        mark = self.take(1)
        if mark not in (b"i", b"U", b"I", b"l", b"L"):
            raise Malformed(f"{mark!r} is no length")
        return int(self._number(mark))

    def _text(self) -> str:
        return self.take(self._count()).decode()

    def _object(self, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while self.data[self.place : self.place + 1] != b"}":
            name = self._text()
            found[name] = self.value(self.take(1), depth + 1)
        self.take(1)
        return found

    def _array(self, depth: int) -> list[Value] | NDArray[Any]:
        head = self.data[self.place : self.place + 1]
        if head == b"$":
            dtype = _ARRAYS.get(self.take(2)[1:])
            if dtype is None or self.take(1) != b"#":
                raise Malformed("an array of no type of number")
            return np.frombuffer(self.take(self._count() * dtype.itemsize), dtype)
        if head == b"#":
            self.take(1)
            count = self._count()
            if not 0 <= count <= len(self.data) - self.place:
                raise Malformed("it ends early")
            return [self.value(self.take(1), depth + 1) for _ in range(count)]
        found = []
        while (mark := self.take(1)) != b"]":
            found.append(self.value(mark, depth + 1))
        return found


def encode(value: Value) -> bytes:
    """The bytes of a value, of which XGBoost reads them."""
    parts: list[bytes] = []
    _put(parts, value)
    return b"".join(parts)


def _put(parts: list[bytes], value: Value) -> None:
    if isinstance(value, dict):
        parts.append(b"{")
        for name, item in value.items():
            parts += (_length(name.encode()), name.encode())
            _put(parts, item)
        parts.append(b"}")
    elif isinstance(value, np.ndarray):
        parts += (b"[$", _MARKS[value.dtype], b"#", _size(len(value)), value.tobytes())
    elif isinstance(value, list):
        parts += (b"[#", _size(len(value)))
        for item in value:
            _put(parts, item)
    elif isinstance(value, str):
        parts += (b"S", _length(value.encode()), value.encode())
    else:
        parts += (b"L", _NUMBERS[b"L"].pack(int(value)))


def _size(count: int) -> bytes:
    return b"L" + _NUMBERS[b"L"].pack(count)


def _length(text: bytes) -> bytes:
    return _size(len(text))
