"""Patterns over programs: what rules are written in, matched at a node, and built from a match.

    contract[R](mul(a, s), b)

stands for a sum of products over the axes R whose first factor is a product. Words without operands
stand for any tile, the same word for the same tile. The operands of products and sums come in
either order. Axes in brackets are bound by the pattern, or given by the rule's condition; over no
axes at all, a `sum` is its operand and a `contract` a product.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

from ir.builder import Graph, cast
from ir.dtypes import compute_dtype
from ir.ops.map import Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program
from ir.scalar import FUNCTIONS
from ir.tiles import Tile, apply

Axes = tuple[str, ...]
SWAPS = frozenset({"add", "mul", "max", "min", "contract"})  # either order of operands will do
WIDE = frozenset({"f32", "f64", "i32", "i64"})  # in these, arithmetic goes on without narrowing
_TOKEN = re.compile(r"[A-Za-z_]\w*|[\[\](),]|\S")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A head with operands, or a word (no operands); `over` names the axes of a sum."""

    head: str
    over: str = ""
    args: tuple[Pattern, ...] = ()

    @property
    def is_word(self) -> bool:
        return not self.args

    def __str__(self) -> str:
        if self.is_word:
            return self.head
        over = f"[{self.over}]" if self.over else ""
        return f"{self.head}{over}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Match:
    """What a pattern was found to be: tiles by word, axes by name, the accumulators' dtype."""

    program: Program
    root: int
    tiles: Mapping[str, int] = field(default_factory=dict)
    over: Mapping[str, Axes] = field(default_factory=dict)
    acc: str = ""

    def axes(self, word: str) -> frozenset[str]:
        """The axes that a tile has."""
        return frozenset(self.program.nodes[self.tiles[word]].axes)

    def constant(self, word: str) -> float | None:
        """The number that a tile is, if it is one."""
        op = self.program.nodes[self.tiles[word]].op
        return op.value if isinstance(op, Constant) else None


@lru_cache(maxsize=256)
def parsed(text: str) -> Pattern:
    """A pattern from its text; raises ValueError."""
    tokens = _TOKEN.findall(text)
    found, rest = _parsed(tokens, text)
    if rest:
        raise ValueError(f"pattern {text!r}: {rest[0]!r} is left over")
    return found


def _parsed(tokens: list[str], text: str) -> tuple[Pattern, list[str]]:
    if not tokens or not tokens[0].isidentifier():
        raise ValueError(f"pattern {text!r}: a word is missing")
    head, rest, over = tokens[0], tokens[1:], ""
    if rest[:1] == ["["]:
        over, rest = rest[1], rest[3:]
    if rest[:1] != ["("]:
        return Pattern(head, over), rest
    if head not in FUNCTIONS and head not in ("contract", "sum"):
        raise ValueError(f"pattern {text!r}: {head!r} is no function")
    args: list[Pattern] = []
    while rest[0] != ")":
        arg, rest = _parsed(rest[1:], text)
        args.append(arg)
    return Pattern(head, over, tuple(args)), rest[1:]


def matches(pattern: Pattern, program: Program, root: int) -> Iterator[Match]:
    """Every way in which the node at `root` is of the pattern's form."""
    yield from _matches(pattern, Match(program, root), root)


def _matches(pattern: Pattern, match: Match, position: int) -> Iterator[Match]:
    if pattern.is_word:
        known = match.tiles.get(pattern.head)
        if known is None or known == position:
            tiles = {**match.tiles, pattern.head: position}
            yield Match(match.program, match.root, tiles, match.over, match.acc)
        return
    node = match.program.nodes[position]
    found = _headed(pattern, match, node)
    if found is None:
        return
    orders = permutations(node.args) if pattern.head in SWAPS else iter([node.args])
    for args in dict.fromkeys(orders):
        partial = [found]
        for one, arg in zip(pattern.args, args, strict=True):
            partial = [new for old in partial for new in _matches(one, old, arg)]
        yield from partial


def _headed(pattern: Pattern, match: Match, node: Node) -> Match | None:
    """The match with a node's axes and accumulator, if the node has the pattern's head.

    All of a match computes in one dtype: between others, something is rounded.
    """
    if node.dtype not in WIDE or match.acc not in ("", node.dtype):
        return None
    over: Axes = ()
    if _is_sum(pattern.head, node):
        assert isinstance(node.op, Contract | Reduce)
        over = node.op.over
    elif node.op != Map(pattern.head) or len(node.args) != len(pattern.args):
        return None
    known = match.over.get(pattern.over)
    if pattern.over and known is not None and set(known) != set(over):
        return None
    names = {**match.over, pattern.over: over} if pattern.over else match.over
    return Match(match.program, match.root, match.tiles, names, node.dtype)


def _is_sum(head: str, node: Node) -> bool:
    if isinstance(node.op, Reduce):
        return head == "sum" and node.op.kind == "sum"
    return head == "contract" and isinstance(node.op, Contract)


def build(pattern: Pattern, graph: Graph, match: Match, made: Mapping[int, Tile]) -> Tile:
    """The tiles that a pattern stands for, of those that were `made` of a program's nodes."""
    if pattern.is_word:
        return made[match.tiles[pattern.head]]
    args = [build(arg, graph, match, made) for arg in pattern.args]
    over = match.over[pattern.over] if pattern.over else ()
    if pattern.head == "sum":
        own = args[0] if compute_dtype(args[0].dtype) == match.acc else cast(args[0], match.acc)
        return graph.add(Reduce("sum", over), own) if over else own
    if pattern.head == "contract" and over:
        return graph.add(Contract(over, match.acc), *args)
    if pattern.head == "contract":
        args = [cast(arg, match.acc) for arg in args]
        return apply("mul", *args)
    return apply(pattern.head, *args)
