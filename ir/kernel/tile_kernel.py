"""Kernels as operations on tiles: what passes change one after the other, and printers write down.

A kernel has operations, each a group of parts that is scheduled as one, and statements that say
when they are done: loops, roles, conditions, and what synchronises them, which only a pass inserts.
Knows no target: an instruction is a word, and what a part computes is a node of the program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ir.errors import TilewrightError
from ir.kernel.body import TENSOR, THREADS, Operation

ALWAYS, NEVER, EVERY, WITHIN, AGAIN = "always", "never", "every", "within", "again"
BLOCK, BLOCKS = "block", "blocks"  # the present block of a main loop, and how many there are
TILE = "tile"  # the present tile of a walk over tiles
LEFT = "left"  # blocks or tiles of the main loop from the present one on


class KernelError(TilewrightError):
    """A kernel that is none: an operation that it lacks, a wait that nobody ends."""


# -- where and when


@dataclass(frozen=True, slots=True)
class At:
    """A block of a main loop: number `number`, or so many from the present one or from the end.

    >>> [str(At(BLOCK, -1)), str(At(BLOCKS, -2)), str(At("", 3))]
    ['block-1', 'blocks-2', '3']
    """

    of: str = BLOCK
    number: int = 0

    def __str__(self) -> str:
        if not self.of:
            return str(self.number)
        return f"{self.of}{self.number:+}" if self.number else self.of

    def value(self, block: int, blocks: int) -> int:
        """The number of the block."""
        return {"": 0, BLOCK: block, TILE: block, BLOCKS: blocks}[self.of] + self.number

    @staticmethod
    def parse(text: str) -> At:
        match = re.fullmatch(r"(blocks|block|tile|)([+-]?\d+)?", text)
        if match is None or not text:
            raise KernelError(f"kernel: {text!r} is no block")
        return At(match[1], int(match[2] or 0))


PRESENT = At()


@dataclass(frozen=True, slots=True)
class When:
    """A condition: always, never, from so many blocks on, in the last of every so many, in all but
    the first of them (`within`), in the first of them but of the first so many (`again`), or while
    so many are left."""

    of: str = ALWAYS
    least: int = 0

    def __str__(self) -> str:
        if self.of in (EVERY, WITHIN, AGAIN):
            return f"{self.of} {self.least}"
        return self.of if self.of in (ALWAYS, NEVER) else f"{self.of} >= {self.least}"

    def holds(self, block: int, blocks: int) -> bool:
        """Whether it does."""
        if self.of in (ALWAYS, NEVER):
            return self.of == ALWAYS
        if self.of == EVERY:
            return block % self.least == self.least - 1
        if self.of == WITHIN:
            return block % self.least > 0
        if self.of == AGAIN:
            return block > 0 and block % self.least == 0
        known = {BLOCK: block, BLOCKS: blocks, LEFT: blocks - block}
        return known[self.of] >= self.least

    @staticmethod
    def parse(text: str) -> When:
        if text in (ALWAYS, NEVER):
            return When(text)
        match = re.fullmatch(r"(blocks|block|left) >= (\d+)", text) or re.fullmatch(
            r"(every|within|again) (\d+)", text
        )
        if match is None:
            raise KernelError(f"kernel: {text!r} is no condition")
        return When(match[1], int(match[2]))


SECOND = When(BLOCK, 1)


# -- values


@dataclass(frozen=True, slots=True)
class Tile:
    """A value of the kernel: node `node` over some points of its axes.

    `residence` is memory, shared or registers; `layout` says how it lies there, as text.
    """

    name: str
    node: int
    residence: str
    dtype: str
    axes: tuple[tuple[str, int], ...]
    layout: str = ""

    def __str__(self) -> str:
        axes = ", ".join(f"{axis} {points}" for axis, points in self.axes)
        layout = f" as {self.layout}" if self.layout else ""
        return f"{self.residence} {self.name}: {self.dtype}[{axes}] of {self.node}{layout}"

    @staticmethod
    def parse(line: str) -> Tile:
        match = re.fullmatch(r"(\w+) (\S+): (\w+)\[(.*?)\] of (-?\d+)(?: as (.*))?", line)
        if match is None:
            raise KernelError(f"kernel: {line!r} is no tile")
        pairs = (part.rpartition(" ") for part in match[4].split(", ") if part)
        axes = tuple((axis, int(points)) for axis, _, points in pairs)
        return Tile(match[2], int(match[5]), match[1], match[3], axes, match[6] or "")


@dataclass(frozen=True, slots=True)
class Ring:
    """Tiles in shared memory that are filled and freed together, in so many slots."""

    name: str
    tiles: tuple[str, ...]
    slots: int

    def __str__(self) -> str:
        return f"ring {self.name}: {self.slots} of {', '.join(self.tiles)}"

    @staticmethod
    def parse(line: str) -> Ring:
        match = re.fullmatch(r"ring (\S+): (\d+) of (.*)", line)
        if match is None:
            raise KernelError(f"kernel: {line!r} is no ring")
        return Ring(match[1], tuple(match[3].split(", ")), int(match[2]))


# -- statements


@dataclass(frozen=True, slots=True)
class Do:
    """An operation, or one piece of it, of one block. `later`: when that is not the first block.

    `back`: how many slots ago that was the present one which it reads, of rings that it shares with
    other operations.
    """

    operation: str
    at: At = PRESENT
    piece: int | None = None
    later: When = SECOND
    back: int = 0

    def __str__(self) -> str:
        at = "" if self.at == PRESENT else f" of {self.at}"
        piece = "" if self.piece is None else f" piece {self.piece}"
        later = "" if self.later == SECOND else f" later {self.later}"
        back = f" back {self.back}" if self.back else ""
        return f"do {self.operation}{at}{piece}{back}{later}"


@dataclass(frozen=True, slots=True)
class Sync:
    """What synchronises: `kind` is a word of `SYNCS`, `of` a ring, an operation or a name."""

    kind: str
    of: str = ""
    number: int = 0

    def __str__(self) -> str:
        subject = f" {self.of}" if self.of else ""
        return f"sync {self.kind}{subject}" + (f" {self.number}" if self.number else "")


FULL, FREE, EXPECT = "full", "free", "expect"
RELEASE, ADVANCE = "release", "advance"
FENCE, COMMIT, AWAIT, DONE = "fence", "commit", "await", "done"
COPIED, COMMIT_COPIES, BARRIER = "copied", "commit-copies", "barrier"
TAKE, GIVE, NEXT_TILE, SKIP = "take-turn", "give-turn", "pass-tile", "skip-tiles"
BEFORE, STORED = "kernel-before", "stored"
PUBLISH, MEET = "publish", "meet"
CLUSTER = "cluster"
FIRST_GROUP = "first"  # the group that has the turn when a kernel begins
EXCHANGED = "exchanged"  # what warps write for each other, in places that may be used again
OVERLAID = "overlaid"  # rings one after the other in one place, where threads have other bytes
SYNCS = {
    FULL: "wait until the present slot of a ring is full",
    FREE: "wait until the present slot of a ring may be filled",
    EXPECT: "tell how many bytes come to a slot",
    RELEASE: "free the slot of a ring that was used so many slots ago",
    ADVANCE: "go on to the next slot of a ring",
    FENCE: "registers that tensor cores read or write are theirs from here on",
    COMMIT: "what was issued to tensor cores is one group",
    AWAIT: "wait until at most so many groups of tensor cores run",
    DONE: "what an operation of tensor cores wrote may be read",
    COPIED: "wait until at most so many groups of this thread's copies run",
    COMMIT_COPIES: "what this thread copies is one group",
    BARRIER: "all threads of a block meet",
    CLUSTER: "all threads of a cluster's blocks meet",
    TAKE: "wait for the turn at the tensor cores",
    GIVE: "pass the turn at the tensor cores",
    NEXT_TILE: "let the next group begin its tile",
    SKIP: "leave tiles of other groups out, and wait for the group before",
    PUBLISH: "what threads wrote to shared memory is there for products of all groups, or the slot "
    "of a ring is full",
    MEET: "all groups that share a tile meet",
    BEFORE: "wait until the kernel before in the stream has ended",
    STORED: "wait until what is written has been read from its buffers",
}


@dataclass(frozen=True, slots=True)
class Alloc:
    """Registers for values, which live to the end of what it stands in."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"registers {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Loop:
    """`over` is tile or block. A block loop goes from `first` to `end`, by `step`; so does one over
    the first tiles.

    `free`: blocks that no mask touches are a loop of their own, for operations of so many blocks
    ago. `order`: the name of the modulo schedule that made it, or is to.
    """

    over: str
    body: tuple[Statement, ...]
    first: At = At("")
    end: At = At(BLOCKS)
    step: int = 1
    free: int | None = None
    order: str = ""

    def __str__(self) -> str:
        words = [f"for {self.over}"]
        if self.over == BLOCK or self.end != At(BLOCKS):
            words.append(f"from {self.first} to {self.end}")
            words += [f"by {self.step}"] if self.step != 1 else []
            words += [f"free {self.free}"] if self.free is not None else []
            words += [f"order {self.order}"] if self.order else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class If:
    """What is done only in some steps."""

    when: When
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"if {self.when}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Values formed inside are forgotten behind it; `name` is for people."""

    name: str
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"scope {self.name}"


@dataclass(frozen=True, slots=True)
class Role:
    """What some of a block's warps do."""

    name: str
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"role {self.name}"


@dataclass(frozen=True, slots=True)
class Merge:
    """Sums of which several blocks have parts come together; one of them goes on with the body."""

    way: str
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"merge {self.way}"


Leaf = Do | Sync | Alloc
Nested = Loop | If | Scope | Role | Merge
Statement = Leaf | Nested
NESTED = (Loop, If, Scope, Role, Merge)


# -- kernels


@dataclass(frozen=True)
class TileKernel:
    """A kernel between a schedule and text.

    >>> kernel = TileKernel.parse('''
    ... kernel twice
    ... memory X: f32[i 64] of 0
    ... op double: threads(X) -> Y
    ...   map 1
    ... for tile
    ...   do double later never''')
    >>> kernel == TileKernel.parse(str(kernel))
    True
    """

    name: str
    tiles: tuple[Tile, ...] = ()
    rings: tuple[Ring, ...] = ()
    operations: tuple[Operation, ...] = ()
    body: tuple[Statement, ...] = ()

    def operation(self, name: str) -> Operation:
        """Raises KernelError for a name that it lacks."""
        for one in self.operations:
            if one.name == name:
                return one
        raise KernelError(f"kernel {self.name}: no operation {name!r}")

    def ring(self, name: str) -> Ring:
        """Raises KernelError for a name that it lacks."""
        for one in self.rings:
            if one.name == name:
                return one
        raise KernelError(f"kernel {self.name}: no ring {name!r}")

    @property
    def shared_rings(self) -> frozenset[str]:
        """Rings of which several operations of tensor cores read one slot."""
        takers = Counter(
            ring for one in self.operations if one.unit == TENSOR for ring in one.takes
        )
        return frozenset(ring for ring, count in takers.items() if count > 1)

    @property
    def relayed(self) -> tuple[str, ...]:
        """Rings that threads fill, and no copies."""
        written = {name for one in self.operations if one.unit == THREADS for name in one.writes}
        return tuple(ring.name for ring in self.rings if written & {*ring.tiles})

    def statements(self) -> Iterator[Statement]:
        """All of them, each before what is in it."""
        yield from walk(self.body)

    def role(self, name: str) -> Role:
        """Raises KernelError for a name that it lacks."""
        for one in self.body:
            if isinstance(one, Role) and one.name == name:
                return one
        raise KernelError(f"kernel {self.name}: no role {name!r}")

    def with_body(self, body: tuple[Statement, ...]) -> TileKernel:
        return replace(self, body=body)

    def __str__(self) -> str:
        lines = [f"kernel {self.name}"]
        lines += [str(one) for one in (*self.tiles, *self.rings)]
        for one in self.operations:
            lines.append(f"op {one}")
            lines += [f"  {part}" for part in one.parts]
        return "\n".join([*lines, *_lines(self.body, 0)])

    @staticmethod
    def parse(text: str) -> TileKernel:
        """The kernel that prints like that; raises KernelError for a line that is none."""
        from ir.kernel.parsing import parse_kernel

        return parse_kernel(text)


def _lines(body: tuple[Statement, ...], depth: int) -> Iterator[str]:
    for one in body:
        yield f"{'  ' * depth}{one}"
        if isinstance(one, NESTED):
            yield from _lines(one.body, depth + 1)


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Statements, each before what is in it."""
    for one in body:
        yield one
        if isinstance(one, NESTED):
            yield from walk(one.body)


Change = Callable[[Statement], tuple[Statement, ...]]


def rewritten(body: tuple[Statement, ...], change: Change) -> tuple[Statement, ...]:
    """Every statement as `change` has it, the innermost first."""
    found: list[Statement] = []
    for one in body:
        if isinstance(one, NESTED):
            one = replace(one, body=rewritten(one.body, change))
        found += change(one)
    return tuple(found)
