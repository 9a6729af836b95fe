"""What a pass is, and kernels behind each of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ir.kernel.tile_kernel import TileKernel


class Pass(Protocol):
    """Makes one kernel of another, which means the same."""

    def __call__(self, kernel: TileKernel) -> TileKernel: ...


def after_each(kernel: TileKernel, passes: Iterable[Pass]) -> Iterator[tuple[str, TileKernel]]:
    """The kernel as it was built, and behind every pass, by the pass's name."""
    yield "build", kernel
    for one in passes:
        kernel = one(kernel)
        yield type(one).__name__.lower(), kernel
