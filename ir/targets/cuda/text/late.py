"""What an epilogue reads of memory, asked for some columns before it is needed.

Loads and stores of a thread keep their order, so that columns which load what they are combined
with, and store, one after the other wait for memory once each. The words of the columns to come are
in registers instead, as they lie in memory, while the present ones are combined and stored: a
software pipeline over the unrolled columns (Lam, PLDI 1988), of which the main loop has no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ir.dtypes import dtype_of
from ir.targets.cuda.build.late import late_loads
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.transfers import LEAST_COPY, Staged


@dataclass(frozen=True)
class Late:
    """The loads of `total` columns of a store, `depth` of them asked for ahead; `words` are arrays
    by load. Other digits are as they are fixed when it begins."""

    e: Evaluator
    digit: Digit
    depth: int
    total: int
    words: dict[int, str]

    def step(self, column: str) -> None:
        """At one column: those to come are asked for, and its own are where loads find them."""
        w = self.e.w
        with w.block(f"if ({column} + {self.depth} < {self.total})"):
            self._ask(f"{column} + {self.depth}")
        for position, name in self.words.items():
            self.e.staged[position] = Staged(words=f"{name}[{column}]")

    def _ask(self, column: str) -> None:
        saved, self.e.fixed = self.e.fixed, {**self.e.fixed, self.digit: f"({column})"}
        for position, name in self.words.items():
            self.e.fetch_ahead(position, Staged(words=f"{name}[{column}]"))
        self.e.fixed = saved


@contextmanager
def asking(
    e: Evaluator, position: int, digit: Digit, depth: int, total: int
) -> Iterator[Late | None]:  # fmt: skip
    """The first columns' loads are asked for, those behind them in `step`; None if there are none
    that can wait in registers."""
    depth = min(depth, total)
    loads = [load for load in late_loads(e.program, position) if _waits(e, load, digit)]
    if not depth or not loads:
        yield None
        return
    saved, e.fixed = e.fixed, {**e.fixed, digit: "0"}
    late = Late(e, digit, depth, total, {})
    for load in loads:
        late.words[load] = e.declare_words(load, f"[{total}]").words
    e.fixed = saved
    column = e.w.name("c")
    with e.w.unrolled(column, depth):
        late._ask(column)
    yield late
    for load in loads:
        e.staged.pop(load, None)


@contextmanager
def fixing_ahead(e: Evaluator, position: int, digit: Digit, depth: int) -> Iterator[None]:
    """A loop over the columns of a store, with what it loads asked for ahead."""
    with asking(e, position, digit, depth, digit.size) as late, e.fixing(digit):
        if late:
            late.step(e.fixed[digit])
        yield


@contextmanager
def fixing_all(
    e: Evaluator, position: int, digits: Sequence[Digit], depth: int
) -> Iterator[None]:  # fmt: skip
    """Loops over several digits of a store; the innermost asks ahead."""
    with ExitStack() as stack:
        for number, digit in enumerate(digits, 1):
            ahead = depth if number == len(digits) else 0
            stack.enter_context(fixing_ahead(e, position, digit, ahead))
        yield


def _waits(e: Evaluator, load: int, digit: Digit) -> bool:
    """Whether a load is not there yet, varies along the columns, and comes in whole words."""
    if load in e.values or load in e.staged or any(load in together for together in e.alike):
        return False
    node = e.nodes[load]
    if not e.access(load).plain or digit not in e.own(node.axes):
        return False
    saved, e.fixed = e.fixed, {**e.fixed, digit: "0"}
    size = e.width(load) * dtype_of(node.dtype).bytes
    e.fixed = saved
    return size >= LEAST_COPY and size <= 16
