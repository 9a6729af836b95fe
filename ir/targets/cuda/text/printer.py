"""The printer of kernels: goes through statements; what becomes of one, those say who derive.

Each knows what its units can do: a statement that has no text is a KernelError, which names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ir.kernel.tile_kernel import (
    BEFORE,
    COMMIT_COPIES,
    COPIED,
    Alloc,
    Do,
    If,
    KernelError,
    Loop,
    Merge,
    Scope,
    Statement,
    Sync,
    TileKernel,
)
from ir.targets.cuda.grid.overlap import await_kernel_before
from ir.targets.cuda.text.writer import Writer


class Printer:
    """Prints a kernel's statements with a writer. `who` is named where one has no text."""

    who = "a kernel"

    def __init__(self, kernel: TileKernel, w: Writer) -> None:
        self.kernel, self.w = kernel, w

    def all(self, body: Sequence[Statement]) -> None:
        """Statements, one after the other."""
        for one in body:
            self.statement(one)

    def statement(self, one: Statement) -> None:
        """One statement, with all that is in it."""
        ways: tuple[tuple[type, Callable[[Any], None]], ...] = (
            (Do, self.do), (Sync, self.sync), (Alloc, self.alloc), (Loop, self.loop),
            (If, self.branch), (Scope, self.scope), (Merge, self.merge),
        )  # fmt: skip
        for kind, way in ways:
            if isinstance(one, kind):
                way(one)
                return
        self.lacks(one)

    def lacks(self, one: Statement) -> NoReturn:
        """Raises KernelError."""
        raise KernelError(f"kernel {self.kernel.name}: {self.who} has no {one}")

    def do(self, one: Do) -> None:
        self.lacks(one)

    def sync(self, one: Sync) -> None:
        """What is the same text wherever it stands."""
        if one.kind == COPIED:
            self.w.line(f"tw_copy_async_wait<{one.number}>();")
        elif one.kind == COMMIT_COPIES:
            self.w.line("tw_copy_async_commit();")
        elif one.kind == BEFORE:
            await_kernel_before(self.w, True)
        else:
            self.lacks(one)

    def alloc(self, one: Alloc) -> None:
        self.lacks(one)

    def loop(self, one: Loop) -> None:
        self.lacks(one)

    def branch(self, one: If) -> None:
        self.lacks(one)

    def scope(self, one: Scope) -> None:
        with self.w.block(""):
            self.all(one.body)

    def merge(self, one: Merge) -> None:
        self.lacks(one)
