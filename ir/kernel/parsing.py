"""Kernels as text, read: the lines that `str(kernel)` writes."""

from __future__ import annotations

import re
from collections.abc import Callable

from ir.kernel.body import Operation, Part, read_operation
from ir.kernel.tile_kernel import (
    PRESENT,
    SECOND,
    SYNCS,
    Alloc,
    At,
    Do,
    If,
    KernelError,
    Loop,
    Merge,
    Ring,
    Role,
    Scope,
    Statement,
    Sync,
    Tile,
    TileKernel,
    When,
)

Nest = list[tuple[int, str]]  # lines with their depths
_DO = re.compile(r"do (\S+)(?: of (\S+))?(?: piece (\d+))?(?: back (\d+))?(?: later (.*))?")
_LOOP = re.compile(
    r"for (\w+)(?: from (\S+) to (\S+))?(?: by (\d+))?(?: free (\d+))?(?: order (\S+))?"
)


def parse_kernel(text: str) -> TileKernel:
    """The kernel; raises KernelError for a line that is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not lines[0].strip().startswith("kernel "):
        raise KernelError("kernel: the first line is `kernel NAME`")
    tiles, rings, operations, rest = [], [], [], 1
    while rest < len(lines):
        line = lines[rest].strip()
        word = line.partition(" ")[0]
        if word in ("memory", "shared", "registers") and ": " in line:
            tiles.append(Tile.parse(line))
        elif word == "ring":
            rings.append(Ring.parse(line))
        elif word == "op":
            found, rest = _operation(lines, rest)
            operations.append(found)
            continue
        else:
            break
        rest += 1
    name = lines[0].strip().removeprefix("kernel ")
    nest = [((len(line) - len(line.lstrip())) // 2, line.strip()) for line in lines[rest:]]
    body = _body(nest, 0)
    if nest:
        raise KernelError(f"kernel: {nest[0][1]!r} is indented too far")
    return TileKernel(name, tuple(tiles), tuple(rings), tuple(operations), body)


def _operation(lines: list[str], place: int) -> tuple[Operation, int]:
    head, parts = lines[place].strip().removeprefix("op "), []
    place += 1
    while place < len(lines) and lines[place].startswith("  "):
        try:
            parts.append(Part.parse(lines[place].strip()))
        except ValueError:
            break
        place += 1
    return read_operation(head, tuple(parts)), place


def _body(nest: Nest, depth: int) -> tuple[Statement, ...]:
    """Statements at a depth; takes their lines away."""
    found: list[Statement] = []
    while nest and nest[0][0] == depth:
        _, line = nest.pop(0)
        found.append(_statement(line, nest, depth))
    return tuple(found)


def _statement(line: str, nest: Nest, depth: int) -> Statement:
    word, _, rest = line.partition(" ")
    if word == "do":
        return _do(line)
    if word == "sync":
        return _sync(rest)
    if word == "registers":
        return Alloc(tuple(rest.split(", ")))
    if word == "for":
        return _loop(line, _body(nest, depth + 1))
    if word == "if":
        return If(When.parse(rest), _body(nest, depth + 1))
    named: dict[str, Callable[[str, tuple[Statement, ...]], Statement]] = {
        "scope": Scope, "role": Role, "merge": Merge,
    }  # fmt: skip
    if word not in named:
        raise KernelError(f"kernel: {line!r} is no statement")
    return named[word](rest, _body(nest, depth + 1))


def _do(line: str) -> Do:
    match = _DO.fullmatch(line)
    if match is None:
        raise KernelError(f"kernel: {line!r} does nothing")
    piece = None if match[3] is None else int(match[3])
    at = At.parse(match[2]) if match[2] else PRESENT
    later = When.parse(match[5]) if match[5] else SECOND
    return Do(match[1], at, piece, later, int(match[4] or 0))


def _sync(rest: str) -> Sync:
    kind, *more = rest.split()
    if kind not in SYNCS:
        raise KernelError(f"kernel: nothing synchronises by {kind!r}")
    number = int(more.pop()) if more and more[-1].isdigit() else 0
    return Sync(kind, " ".join(more), number)


def _loop(line: str, body: tuple[Statement, ...]) -> Loop:
    match = _LOOP.fullmatch(line)
    if match is None:
        raise KernelError(f"kernel: {line!r} is no loop")
    over, first, end, step, free, order = match.groups()
    bounds = {} if first is None else {"first": At.parse(first), "end": At.parse(end)}
    return Loop(
        over, body, **bounds, step=int(step or 1), free=None if free is None else int(free),
        order=order or "",
    )  # fmt: skip
