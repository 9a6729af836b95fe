"""Loads of later steps of a loop, under way while the present one is computed.

Each thread asks for what it will read itself, so no step waits for other threads. A ring in shared
memory, filled by cp.async, holds as many steps as are ahead: what a step leaves free is filled at
once for the step that many later. One step can wait in registers instead, as it lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.transfers import LEAST_COPY, Staged


def can_be_ahead(evaluator: Evaluator, position: int) -> bool:
    """Whether a load is made of words that cp.async copies: 4, 8 or 16 bytes."""
    node = evaluator.nodes[position]
    if not isinstance(node.op, Load) or node.args or dtype_of(node.dtype).bytes > LEAST_COPY:
        return False
    return evaluator.width(position) * dtype_of(node.dtype).bytes >= LEAST_COPY


def step_bytes(evaluator: Evaluator, position: int) -> int:
    """Shared memory of a load in one step, of all threads."""
    node = evaluator.nodes[position]
    count = evaluator.frame.count(node.axes)
    return count * dtype_of(node.dtype).bytes * evaluator.team.size


@dataclass(frozen=True)
class Ahead:
    """The ring of one loop: `depth` steps of `loads`, from byte `start` of shared memory."""

    evaluator: Evaluator
    loads: Sequence[int]
    depth: int
    start: int = 0

    @property
    def bytes(self) -> int:
        return self.depth * self.step

    @property
    def step(self) -> int:
        return sum(step_bytes(self.evaluator, position) for position in self.loads)

    def begin(self) -> None:
        """Declare where the steps wait."""
        w = self.evaluator.w
        w.line(f"const u32 ring = tw_shared_address(tw_shared_base()) + {self.start};")
        w.line("u32 slot = 0;")

    @contextmanager
    def first(self, step: str) -> Iterator[str]:
        """The loop that fills the ring; gives the number of the step to copy in `copy`."""
        w = self.evaluator.w
        with w.unrolled(step, self.depth):
            yield step
            w.line("tw_copy_async_commit();")

    def copy(self, slot: str) -> None:
        """Ask for all loads at the evaluator's origins."""
        for position, place in self._places(slot):
            self.evaluator.copy_ahead(position, place)

    def take(self) -> None:
        """Wait for the present step and form its loads."""
        self.evaluator.w.line(f"tw_copy_async_wait<{self.depth - 1}>();")
        for position, place in self._places("slot"):
            self.evaluator.staged[position] = place
            self.evaluator.fragment(position)
            del self.evaluator.staged[position]

    def turn(self) -> None:
        """End the copies of a step."""
        w = self.evaluator.w
        w.line("tw_copy_async_commit();")
        if self.depth > 1:
            w.line(f"slot = slot == {self.depth - 1} ? 0 : slot + 1;")

    def end(self) -> None:
        """After the loop: nothing is under way any more."""
        self.evaluator.w.line("tw_copy_async_wait<0>();")

    def _places(self, slot: str) -> Iterator[tuple[int, Staged]]:
        offset = 0
        for position in self.loads:
            start = f"ring + {slot} * {self.step}u" if self.depth > 1 else "ring"
            yield position, Staged(f"{start} + {offset}" if offset else start)
            offset += step_bytes(self.evaluator, position)


@dataclass(frozen=True)
class NextInRegisters:
    """The loads of the next step, in registers: what `Ahead` is, one deep."""

    evaluator: Evaluator
    loads: Sequence[int]
    places: dict[int, Staged] = field(default_factory=dict)
    depth: int = 1
    bytes: int = 0

    def begin(self) -> None:
        """Declare where the step waits."""
        for position in self.loads:
            self.places[position] = self.evaluator.declare_words(position)

    @contextmanager
    def first(self, step: str) -> Iterator[str]:
        """What is written inside asks for the first step; its number is given."""
        with self.evaluator.w.block(""):
            yield "0"

    def copy(self, slot: str) -> None:
        """Ask for all loads at the evaluator's origins."""
        for position, place in self.places.items():
            self.evaluator.fetch_ahead(position, place)

    def take(self) -> None:
        """Form the loads of the present step."""
        for position, place in self.places.items():
            self.evaluator.staged[position] = place
            self.evaluator.fragment(position)
            del self.evaluator.staged[position]

    def turn(self) -> None:
        """Nothing to end."""

    def end(self) -> None:
        """Nothing is under way."""
