"""What the C printer must know of a nest before it prints: uses, dead values, chains of updates.

Knows the nest alone; no text is made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ir.targets.cpu.nest import Block, Branch, Comment, Function, Instruction, Loop, Value

Item = Instruction | Loop | Branch | Comment

_EFFECTS = ("store", "scatter", "prefetch", "call", "intrinsic")


def is_pure(item: Instruction) -> bool:
    """Whether an instruction may be left out when unused (loads included)."""
    return item.op not in _EFFECTS or (item.op == "intrinsic" and item.result is not None)


class Usage:
    """For every value: how often it is used, by which item, and in which block."""

    def __init__(self, function: Function) -> None:
        self.count: dict[int, int] = {}
        self._users: dict[int, tuple[Block, Item | None]] = {}
        self.dead: set[int] = set()  # ids of values that need not be computed
        self.idle: set[int] = set()  # identities of branches that need not be printed
        self._walk(function.block)
        self._bury(function.block)

    def _walk(self, block: Block) -> None:
        for item in block.body:
            for value in _operands(item):
                self._use(value, block, item)
            for inner in _blocks(item):
                self._walk(inner)
        for value in _values(block.yields):
            self._use(value, block, None)

    def _use(self, value: Value, block: Block, item: Item | None) -> None:
        self.count[value.id] = self.count.get(value.id, 0) + 1
        self._users[value.id] = (block, item)

    def _bury(self, block: Block) -> None:
        """Mark what nobody uses, last first, so that whole trees go."""
        for item in reversed(block.body):
            if isinstance(item, Branch):
                self._bury_results(item)
            for inner in reversed(tuple(_blocks(item))):
                self._bury(inner)
            if isinstance(item, Branch) and self._does_nothing(item):
                self.idle.add(id(item))
                self.count[item.condition.id] -= 1
            unused = isinstance(item, Instruction) and item.result and is_pure(item)
            if unused and not self.count.get(item.result.id):  # type: ignore[union-attr]
                self.dead.add(item.result.id)  # type: ignore[union-attr]
                for value in _operands(item):
                    self.count[value.id] -= 1

    def _does_nothing(self, branch: Branch) -> bool:
        if any(result.id not in self.dead for result in branch.results):
            return False
        items = [*branch.then.body, *branch.other.body]
        return all(
            isinstance(i, Comment)
            or (isinstance(i, Branch) and id(i) in self.idle)
            or (isinstance(i, Instruction) and i.result is not None and i.result.id in self.dead)
            for i in items
        )

    def _bury_results(self, branch: Branch) -> None:
        for place, result in enumerate(branch.results):
            if not self.count.get(result.id):
                self.dead.add(result.id)
                for side in (branch.then, branch.other):
                    for value in _values(side.yields[place : place + 1]):
                        self.count[value.id] -= 1

    def sole_user(self, value: Value, block: Block) -> tuple[bool, Item | None]:
        """(whether `value` has exactly one use and that in `block`, the user; None: a yield)."""
        if self.count.get(value.id) != 1:
            return False, None
        where, item = self._users[value.id]
        return where is block, item

    def chain(self, block: Block, start: Value, end: Any) -> list[Value] | None:
        """Values from `start` (exclusive) to `end`, each of which replaces the one before.

        None when some value on the way is still needed after its successor exists: then they
        cannot share one variable.
        """
        found: list[Value] = []
        current = start
        while current is not end:
            alone, user = self.sole_user(current, block)
            following = _successor(user, current) if alone else None
            if following is None or following.type != start.type:
                return None
            found.append(following)
            current = following
        return found


def _successor(user: Item | None, value: Value) -> Value | None:
    """What becomes of `value` in its only user."""
    if isinstance(user, Instruction):
        return user.result
    if isinstance(user, Loop) and value in user.initial:
        return user.results[user.initial.index(value)]
    return None


def _values(operands: tuple[Any, ...]) -> Iterator[Value]:
    return (operand for operand in operands if isinstance(operand, Value))


def _operands(item: Item) -> Iterator[Value]:
    if isinstance(item, Instruction):
        yield from _values(item.args)
    elif isinstance(item, Loop):
        yield from _values((item.low, item.high, *item.initial))
    elif isinstance(item, Branch):
        yield item.condition


def _blocks(item: Item) -> Iterator[Block]:
    if isinstance(item, Loop):
        yield item.block
    elif isinstance(item, Branch):
        yield item.then
        yield item.other
