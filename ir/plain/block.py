"""Statements of a plain kernel as they are made: names, blocks in blocks, what is known there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ir.plain.code import Assign, Call, Convert, Element, If, Let, Name, Scalar, Statement

_DEEPEST = 8  # operations of one expression within another, before the inner one gets a name


class Names:
    """Names of variables and arrays: each is one thing in the whole kernel."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """A name that begins with `stem` and is no word of a language."""
        stem = re.sub(r"\W", "_", stem)
        while True:
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
            if name not in self._taken:
                self._taken.add(name)
                return name


class Block:
    """Statements in order, in those of `parent`; values that are known are not computed again."""

    def __init__(self, names: Names, parent: Block | None = None) -> None:
        self.names = names
        self.parent = parent
        self.statements: list[Statement] = []
        self._known: dict[object, Scalar] = {}

    def inner(self) -> Block:
        return Block(self.names, self)

    @property
    def body(self) -> tuple[Statement, ...]:
        return tuple(self.statements)

    def add(self, statement: Statement) -> None:
        self.statements.append(statement)

    def find(self, key: object) -> Scalar | None:
        """What `keep` was told, here or in a block around this one."""
        block: Block | None = self
        while block is not None:
            if key in block._known:
                return block._known[key]
            block = block.parent
        return None

    def keep(self, key: object, value: Scalar) -> Scalar:
        self._known[key] = value
        return value

    def variable(self, axis: str) -> Name:
        """A variable for a loop along an axis."""
        return Name(self.names.fresh(f"i_{axis}"))

    def let(self, value: Scalar, stem: str = "v") -> Name:
        """A new variable that has the value."""
        name = Name(self.names.fresh(stem), value.dtype)
        self.add(Let(name, value))
        return name

    def named(self, value: Scalar, stem: str = "v", often: bool = True) -> Scalar:
        """The value, as a variable if it is read often, or long."""
        if isinstance(value, Call | Convert | Element) and (often or depth(value) > _DEEPEST):
            return self.let(value, stem)
        return value

    def assign(self, name: Name, value: Scalar) -> None:
        self.add(Assign(name, value))

    def branch(self, condition: Scalar, block: Block) -> None:
        self.add(If(condition, block.body))


def depth(scalar: Scalar) -> int:
    """Operations within each other."""
    if isinstance(scalar, Call):
        return 1 + max((depth(arg) for arg in scalar.args), default=0)
    if isinstance(scalar, Convert):
        return 1 + depth(scalar.arg)
    return 1 + depth(scalar.index) if isinstance(scalar, Element) else 0
