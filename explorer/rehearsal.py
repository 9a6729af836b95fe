"""What a device's array library has to compile before it can draw, evaluate and judge, in parts.

CuPy compiles a kernel for every kind of operation that it meets, some sixty before the first
candidate of a first search of a kind of program, and keeps them in a folder. Processes that do a
part each on a few numbers fill that folder in a third of the time; a file beside it notes whose
kernels are there. Knows recipes and runtimes; no measuring.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from explorer.afforded import output_axes
from explorer.check import Bounds
from explorer.expectation import Recipe, error_model
from explorer.runtime.base import get_runtime
from explorer.runtime.process import ProcessServer, Worker
from ir.dtypes import is_float, numpy_dtype
from ir.inputs import drawn
from ir.oracle import Answer, answers, stepped_axes, tried
from records.canonical import content_key

PARTS = ("draw", "bound", "judge")  # besides evaluating the program and its forms, one by one
MOST = 8  # processes: each has a context of its own on the device
NOTED = ".rehearsed"  # ends the name of the file beside the folder that has a line for each kind
_FEW = 16  # coordinates along an axis are not made fewer
_MANY = 1 << 22  # elements: sums of fewer are compiled otherwise
_DEADLINE = 120.0
_EXTENTS = re.compile(r"(?m) = \d+$|\[[\d, ]+\]")  # of axes, and of tensors' shapes


def rehearse(
    server: ProcessServer, runtime: str, recipe: Recipe, folder: Path, cores: int = 1
) -> tuple[Worker, ...]:
    """Workers that are at it, one for each part, one with a share of the program's nodes, which
    begins with the last, and more of them if half of the cores are more; none where the folder has
    had the same kind of program, of whatever extents."""
    if not _is_new(recipe, folder):
        return ()
    programs = [(number, 0, 1) for number in range(1 + len(recipe.forms))][: MOST - len(PARTS)]
    spare = max(int(cores > 2), min(MOST, cores // 2) - len(PARTS) - len(programs))
    shares = [(0, number, spare) for number in range(1, spare + 1)]
    parts = [("evaluate", given) for given in (*programs, *shares)]
    workers = []
    for part, given in [*parts, *[(part, ()) for part in PARTS]]:
        workers.append(Worker(server, f"{__name__}:Rehearsal", recipe, runtime))
        workers[-1].post(_DEADLINE, part, *given)
    return tuple(workers)


def _is_new(recipe: Recipe, folder: Path) -> bool:
    """Whether nobody has noted this kind of program; it is noted now. A folder that was emptied has
    nobody's kernels, one that cannot be written is not filled."""
    texts = [_EXTENTS.sub("", str(program)) for program in (recipe.program, *recipe.forms)]
    kind, notes = content_key("\n".join(texts)), folder.with_name(folder.name + NOTED)
    filled = False
    with contextlib.suppress(OSError):
        filled = folder.is_dir() and any(folder.iterdir())
        if filled and kind in notes.read_text().split():
            return False
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with notes.open("a" if filled else "w") as file:
            file.write(kind + "\n")
        return True
    return False


class Rehearsal:
    """The worker's object: one method for each part."""

    def __init__(self, recipe: Recipe, runtime: str) -> None:
        self._recipe = recipe
        self._runtime = get_runtime(runtime)
        self._runtime.prepare()

    @property
    def _xp(self) -> Any:
        return self._runtime.arrays()

    def draw(self) -> None:
        """Inputs of few elements."""
        for spec in self._recipe.program.inputs:
            small = replace(spec, shape=_smaller(spec.shape))
            drawn(self._recipe.program, small, self._recipe.seed, self._xp)

    def evaluate(self, number: int = 0, share: int = 0, shares: int = 1) -> None:
        """Few outputs of the program, or of form `number` from 1 on, of inputs that are all 0 and
        take no memory; or the nodes of a share alone, numbered from 1 on."""
        program, xp = (self._recipe.program, *self._recipe.forms)[number], self._xp
        inputs = {
            spec.name: xp.broadcast_to(xp.zeros(1, numpy_dtype(spec.dtype)), spec.shape)
            for spec in program.inputs
        }
        axes = (*output_axes(program), *stepped_axes(program))
        few = {axis: np.arange(min(program.axes[axis], _FEW)) for axis in axes}
        model = error_model(program, self._recipe.accumulations)
        if share:
            own = slice(share - 1, None, shares)
            tried(program, inputs, model, few, own, xp=xp, most=_MANY)
            return
        answers(program, inputs, model, few, xp=xp, room=1 << 28)

    def bound(self) -> None:
        """Intervals of few numbers."""
        for spec in self._recipe.outputs:
            shape = _smaller(spec.shape)
            exact = np.float64 if is_float(spec.dtype) else np.int64
            answer = Answer(self._xp.zeros(shape, exact), self._xp.zeros(shape, np.float32))
            assert Bounds.around(answer, spec.dtype).unbounded == 0

    def judge(self) -> None:
        """Few outputs, poisoned and judged on the device; the intervals come from the host."""
        for spec in self._recipe.outputs:
            shape = _smaller(spec.shape)
            output = self._runtime.empty(shape, spec.dtype)
            self._runtime.poison(output, spec.dtype)
            zeros = self._xp.zeros(shape, _ends(spec.dtype))
            self._runtime.judge(Bounds(spec.dtype, zeros, zeros, 1.0), output * 0)


def _smaller(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As many dimensions, the first ones cut so that few elements are left."""
    found = list(shape)
    for place, extent in enumerate(shape):
        beyond = prod(found) / _MANY
        if beyond > 1:
            found[place] = min(extent, max(_FEW, int(extent / beyond)))
    return tuple(found)


def _ends(dtype: str) -> Any:
    if not is_float(dtype):
        return numpy_dtype(dtype)
    return np.float64 if dtype == "f64" else np.float32
