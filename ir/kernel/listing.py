"""A kernel as people read it: what it is behind each pass, and the text that it becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ir.kernel.passes import Pass, after_each
from ir.kernel.tile_kernel import TileKernel


@dataclass(frozen=True, slots=True)
class Listing:
    """One kernel that is launched. `passes`: its name and text behind each, the builder's first.

    `order` is the name of what its main loop does at a time, `words` say it for people. A kernel
    that is not made by passes has none.
    """

    kernel: str
    order: str
    words: str
    passes: tuple[tuple[str, str], ...]
    text: str

    def __str__(self) -> str:
        lines = [f"kernel {self.kernel}"]
        if self.order:
            lines.append(f"# order {self.order}: {self.words}")
        for name, text in self.passes:
            lines += [f"# behind {name}", *_indented(text.splitlines())]
        return "\n".join([*lines, "# text", *_indented(self.text.splitlines())])


def listing_of(
    kernel: TileKernel, passes: Iterable[Pass], order: str, words: str, text: str
) -> Listing:
    """The listing of a kernel that passes make."""
    found = tuple((name, str(one)) for name, one in after_each(kernel, passes))
    return Listing(kernel.name, order, words, found, text)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]
