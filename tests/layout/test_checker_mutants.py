"""Two strides exchanged anywhere in a real solution are found: the checker reads every table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ir.layout.synthesis import synthesise
from tests.layout.catalogue import Gemm, attention, chunk_state, rearranged, transposition
from tests.layout.checker import check
from tests.layout.checker.tables import offsets
from tests.layout.plain import as_data

Plain = dict[str, Any]
Path = tuple[Any, ...]

# Another layout of a shared tile may be as good: it alone decides where its elements lie.
_FREE = ("shared",)
_NUMBER = re.compile(r"\d+")

PROGRAMS = {
    program.name: program
    for program in (
        Gemm("f16", 64, 32, 32, "mma", b="mn").program(),
        Gemm("bf16", 64, 32, 64, "wgmma", epilogue="staged").program(),
        attention("e4m3", "mma", 64, 32, 32, 128),
        chunk_state("wgmma", 64, 32, 32, 128),
        transposition("f32", 32, 32, 32),
        rearranged("shared", 256, 64, ("(64,4):(4,1)", "(64,4):(1,64)")),
    )
}


def texts(plain: Plain) -> Iterator[Path]:
    """Where the layout texts of a solution are, those of shared tiles and reductions left out."""
    for at, tile in enumerate(plain["tiles"]):
        if tile["scope"] not in _FREE:
            yield ("tiles", at, "layout")
    for at, step in enumerate(plain["steps"]):
        if step["kind"] != "reduce":
            yield from (("steps", at, *path) for path in _inside(step))


def _inside(part: Any) -> Iterator[Path]:
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in pairs:
        if isinstance(value, str) and ":" in value:
            yield (key,)
        elif isinstance(value, dict | list) and key not in ("instructions", "scratch"):
            yield from ((key, *path) for path in _inside(value))


def at(plain: Plain, path: Path) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def exchanged(text: str) -> Iterator[str]:
    """The text with two neighbouring strides exchanged, where that changes the table."""
    shape, stride = text.rsplit(":", 1)
    found = list(_NUMBER.finditer(stride))
    for left, right in pairwise(found):
        between, rest = stride[left.end() : right.start()], stride[right.end() :]
        turned = stride[: left.start()] + right[0] + between + left[0] + rest
        if not np.array_equal(offsets(f"{shape}:{turned}"), offsets(text)):
            yield f"{shape}:{turned}"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.alike(2)
def test_exchanged_strides_are_found(name: str) -> None:
    program = PROGRAMS[name]
    plain = as_data(synthesise(program, limit=1)[0])
    assert not check(program, plain)
    missed, tried = [], 0
    for path in texts(plain):
        for text in exchanged(at(plain, path)):
            broken = deepcopy(plain)
            at(broken, path[:-1])[path[-1]] = text
            tried += 1
            if not check(program, broken):
                missed.append((path, at(plain, path), text))
    assert tried > 10
    assert not missed
