"""How a summand changes when the values it reads move: rules about expressions, deciding only.

A summand is written as a sum of `Term`s, products of factors that either *scale* (the new value is
the old one times a ratio that does not vary over the axis) or are *affine* (the new value is the
old one plus amounts that do not vary over the axis, times coefficients that do not move). Such
products stay among finitely many when a value moves. `streaming.py` writes what is decided here.

A cast that rounds is not linear. A factor passes one only where the rounding is a share of each
number alone (f32 to bf16), or where the number is a weight in [0, 1] that never grows; nothing that
shifts does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from ir.dtypes import holds, is_float, keeps_range
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Reduce
from ir.program import Node
from ir.scalar import lowest

Basis = tuple[int | None, ...]  # coefficients by node; None stands for 1

_MAX_TERMS = 8
_MAX_STATES = 32
_MOST_ABOVE = math.log(256) + 1e-9  # weights of 256 are within every type's range


class NotDerivable(Exception):
    """Internal: an expression has none of the forms; the message says which node and why."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor that scales: a node, rounded to dtype `cast` if given, or what it divides by."""

    node: int
    cast: str = ""
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """One product: `sign` * scaling factors * affine factors where all masks hold, else 0.

    `hoisted` does not vary over the axis and was taken out of the sum: ("mul" | "div", node).
    """

    sign: int = 1
    scaling: tuple[Factor, ...] = ()
    affine: tuple[int, ...] = ()
    masks: tuple[tuple[int, bool], ...] = ()  # (condition, its value)
    hoisted: tuple[tuple[str, int], ...] = ()


class Dependence(Protocol):
    """What the rules ask about a program."""

    nodes: tuple[Node, ...]

    def moves(self, position: int, axis: str) -> bool: ...

    def varies(self, position: int, axis: str) -> bool: ...

    def folds(self, position: int, axis: str, kind: str) -> bool: ...

    def multiplied(self, position: int) -> bool: ...


class Rules:
    """The structural rules for one axis."""

    def __init__(self, program: Dependence, axis: str) -> None:
        self.nodes = program.nodes
        self.program = program
        self.axis = axis
        self.given: list[tuple[int, bool]] = []  # conditions under which an expression counts

    def moves(self, position: int) -> bool:
        return self.program.moves(position, self.axis)

    def varies(self, position: int) -> bool:
        return self.program.varies(position, self.axis)

    def fixed(self, position: int) -> bool:
        """A number as far as the axis goes: neither moves nor varies."""
        return not self.moves(position) and not self.varies(position)

    # -- factors that scale

    def scales(self, position: int) -> bool:
        """f(k, r') / f(k, r) is a positive number that does not depend on k."""
        node = self.nodes[position]
        if not self.moves(position):
            return True
        if not self.varies(position):
            return False  # to be hoisted: its ratio need not exist
        if isinstance(node.op, Cast):
            return self._rounds_alike(node) and self.scales(node.args[0])
        if not isinstance(node.op, Map):
            return False
        if node.op.function in ("mul", "div", "neg"):
            return all(self.scales(arg) for arg in node.args)
        if node.op.function == "where":
            return self._under(node, 0.0, self.scales)
        return node.op.function == "exp" and self.exponent(node.args[0])

    def _rounds_alike(self, node: Node) -> bool:
        """Whether a cast is off by a share of its operand, at any ratio that the operand takes."""
        if not is_float(node.dtype):
            return False
        source = node.args[0]
        dtype = self.nodes[source].dtype
        alike = holds(node.dtype, dtype) or keeps_range(node.dtype, dtype)
        return alike or self.weight(source)

    def weight(self, position: int) -> bool:
        """In [0, 256] at any running value, and no larger at a later one.

        What a cast cannot tell from 0 was no larger before, and nothing exceeds its range. A weight
        that is kept or dropped, whatever it is, is one.
        """
        node = self.nodes[position]
        if node.op == Map("where"):
            return self._under(node, 0.0, self.weight)
        return self._of_exponent(position)

    def _of_exponent(self, position: int) -> bool:
        node = self.nodes[position]
        return node.op == Map("exp") and self._falls(node.args[0])

    def _falls(self, position: int, most: float = _MOST_ABOVE) -> bool:
        """At most `most` at any running value, and no larger at a later one: x - max x, times
        c > 0, or x - (max x - most)."""
        node = self.nodes[position]
        if not isinstance(node.op, Map):
            return False
        function, args = node.op.function, node.args
        if function == "where":
            return self._under(node, -math.inf, lambda one: self._falls(one, most))
        if function in ("mul", "div"):
            turned = args[::-1] if function == "mul" else ()
            return any(
                self._falls(one, 0.0) and self._constant(other)
                for one, other in filter(None, (args, turned))
            )
        if function == "neg":
            inner = self.nodes[args[0]]
            return inner.op == Map("sub") and self._tops(*inner.args)
        if function != "sub":
            return False
        if not self.moves(args[0]):
            return self._tops(args[1], args[0], most)
        return self._falls(args[0], 0.0) and self._log_of_total(args[1])

    def _log_of_total(self, position: int) -> bool:
        """log of a sum of weights over the axis, of which the largest is 1: it only grows."""
        node = self.nodes[position]
        if node.op != Map("log"):
            return False
        total = self.nodes[node.args[0]]
        whole = self.program.folds(node.args[0], self.axis, "sum")
        return whole and self._of_exponent(total.args[0])

    def _under(self, node: Node, outside: float, rule: Callable[[int], bool]) -> bool:
        """Whether a node is a value or `outside`, by a condition that does not move, and `rule`
        holds for the value where it is chosen."""
        if node.op != Map("where") or self.moves(node.args[0]):
            return False
        condition, yes, no = node.args
        for truth, value, other in ((True, yes, no), (False, no, yes)):
            op = self.nodes[other].op
            if isinstance(op, Constant) and op.value == outside:
                self.given.append((condition, truth))
                holds_there = rule(value)
                self.given.pop()
                return holds_there
        return False

    def _is_lowest(self, position: int) -> bool:
        op = self.nodes[position].op
        return isinstance(op, Constant) and op.value <= lowest(op.dtype)

    def _constant(self, position: int) -> bool:
        op = self.nodes[position].op
        return isinstance(op, Constant) and op.value > 0

    def _within(self, position: int, most: float) -> bool:
        op = self.nodes[position].op
        return isinstance(op, Constant) and op.value <= most

    def _tops(self, position: int, below: int, most: float = 0.0) -> bool:
        """Whether a value is, where all that is given holds, the maximum of `below` or more, or at
        most so much less."""
        node, other = self.nodes[position], self.nodes[below]
        if isinstance(node.op, Map) and node.op.function in ("mul", "div") and node.op == other.op:
            pairs = list(zip(node.args, other.args, strict=True))
            same = [one for one, two in pairs if one == two and self._constant(one)]
            return len(same) == 1 and all(
                self._tops(*pair) for pair in pairs if pair[0] not in same
            )
        if node.op == other.op == Map("sub") and node.args[1] == other.args[1]:
            return self._tops(node.args[0], other.args[0], most)
        if node.op == Map("sub") and self._within(node.args[1], most):
            return self._tops(node.args[0], below)
        if node.op == Map("max"):
            still = [arg for arg in node.args if not self.moves(arg)]
            return bool(still) and any(self._tops(arg, below) for arg in node.args)
        if not self.program.folds(position, self.axis, "max"):
            return False
        if other.op == Map("max") and self._is_lowest(other.args[1]):
            below = other.args[0]  # a running maximum is read as a finite number
        body = node.args[0]
        while body != below:
            inner = self.nodes[body]
            if inner.op != Map("where"):
                return False
            condition, yes, no = inner.args
            if (condition, True) not in self.given and (condition, False) not in self.given:
                return False
            body = yes if (condition, True) in self.given else no
        return True

    def exponent(self, position: int) -> bool:
        """An exponent that shifts; -inf where a mask says so."""
        node = self.nodes[position]
        if isinstance(node.op, Map) and node.op.function == "where" and self.moves(position):
            return self._under(node, -math.inf, self.exponent)
        return self.shifts(position) and (self._falls(position) or self.bounded(position))

    def bounded(self, position: int) -> bool:
        """Whether a value moves by no more than a few units, whatever it is made of."""
        node = self.nodes[position]
        if not self.moves(position):
            return True
        if isinstance(node.op, Cast):
            return self.bounded(node.args[0])
        if not isinstance(node.op, Map):
            return False
        if node.op.function in ("tanh", "sigmoid", "erf"):
            return True
        if node.op.function in ("mul", "div"):
            still = [arg for arg in node.args if not self.moves(arg)]
            constant = all(isinstance(self.nodes[arg].op, Constant) for arg in still)
            return constant and all(self.bounded(arg) for arg in node.args)
        known = ("add", "sub", "neg", "max", "min")
        return node.op.function in known and all(self.bounded(arg) for arg in node.args)

    # -- factors that are affine

    def shifts(self, position: int) -> bool:
        """e(k, r') - e(k, r) does not depend on k."""
        return self.basis(position) in ((), (None,))

    def basis(self, position: int) -> Basis | None:
        """What amounts are multiplied with in e(k, r') - e(k, r); None where there is no such."""
        node = self.nodes[position]
        if not self.moves(position):
            return ()
        if not self.varies(position):
            return (None,)
        if isinstance(node.op, Cast):
            exact = is_float(node.dtype) and holds(node.dtype, self.nodes[node.args[0]].dtype)
            return self.basis(node.args[0]) if exact else None
        if not isinstance(node.op, Map):
            return None
        if node.op.function in ("add", "sub", "neg"):
            return self._joined([self.basis(arg) for arg in node.args])
        return self._multiple(node) if node.op.function in ("mul", "div") else None

    def _joined(self, parts: list[Basis | None]) -> Basis | None:
        found: dict[int | None, None] = {}
        for part in parts:
            if part is None:
                return None
            found.update(dict.fromkeys(part))
        return tuple(found)

    def _multiple(self, node: Node) -> Basis | None:
        """The basis of a moving value times, or over, one that does not move."""
        assert isinstance(node.op, Map)
        left, right = node.args
        if self.moves(left) and self.moves(right):
            return None
        moving, other = (left, right) if self.moves(left) else (right, left)
        if node.op.function == "div" and moving == right:
            return None
        inner = self.basis(moving)
        if inner is None or self.fixed(other):
            return inner
        return (other,) if inner == (None,) and node.op.function == "mul" else None

    # -- sums of products

    def terms(self, position: int) -> tuple[Term, ...]:
        """An expression as a sum of products; raises NotDerivable."""
        if self.scales(position):
            return (Term(scaling=(Factor(position),)),)
        if not self.varies(position):
            return (Term(hoisted=(("mul", position),)),)
        node = self.nodes[position]
        found: tuple[Term, ...] | None = None
        if isinstance(node.op, Cast) and is_float(node.dtype):
            return self._cast_terms(position, node)
        if isinstance(node.op, Map):
            found = self._map_terms(position, node)
        if found is None:
            what = node.op.function if isinstance(node.op, Map) else node.op.name
            if what == "exp" and self.shifts(node.args[0]):
                raise NotDerivable(
                    f"node {position} (exp) may overflow on the way along {self.axis}: it is not "
                    "relative to the maximum of its operand"
                )
            raise NotDerivable(
                f"node {position} ({what}) neither scales nor shifts by an amount "
                f"independent of {self.axis}"
            )
        if len(found) > _MAX_TERMS:
            raise NotDerivable(f"node {position} is a sum of {len(found)} products")
        return found

    def _cast_terms(self, position: int, node: Node) -> tuple[Term, ...]:
        """The terms of what is cast: one keeps the rounding, a sum of them is not rounded, so that
        it is no operand of a product of matrices of such numbers any more."""
        source = self.nodes[node.args[0]].dtype
        if not holds(node.dtype, source) and not keeps_range(node.dtype, source):
            raise NotDerivable(
                f"node {position} rounds to {node.dtype} what moves: no factor passes the cast"
            )
        inner = self.terms(node.args[0])
        if len(inner) > 1:
            if self.program.multiplied(position):
                raise NotDerivable(
                    f"node {position} rounds to {node.dtype} a sum whose terms move by themselves"
                )
            return inner
        return (self._rounded(inner[0], node.dtype),)

    def _map_terms(self, position: int, node: Node) -> tuple[Term, ...] | None:
        assert isinstance(node.op, Map)
        function = node.op.function
        if function == "mul":
            return self.product([self.terms(arg) for arg in node.args])
        if function == "div":
            return self._quotient(node)
        if function == "neg":
            return tuple(replace(t, sign=-t.sign) for t in self.terms(node.args[0]))
        if function == "where" and not self.moves(node.args[0]):
            return self._selected(node)
        if function not in ("add", "sub"):
            return None
        if self.basis(position) is not None:
            return (Term(affine=(position,)),)
        left, right = (self.terms(arg) for arg in node.args)
        return (*left, *(replace(t, sign=-t.sign if function == "sub" else t.sign) for t in right))

    def product(self, factors: list[tuple[Term, ...]]) -> tuple[Term, ...]:
        """All products of one term of each factor."""
        found = []
        for parts in product(*factors):
            sign = math.prod(t.sign for t in parts)
            scaling = tuple(f for t in parts for f in t.scaling)
            affine = tuple(e for t in parts for e in t.affine)
            masks = tuple(dict.fromkeys(m for t in parts for m in t.masks))
            found.append(
                Term(sign, scaling, affine, masks, tuple(h for t in parts for h in t.hoisted))
            )
        return tuple(found)

    def _quotient(self, node: Node) -> tuple[Term, ...] | None:
        """Divided by one product of factors that scale."""
        below = self.terms(node.args[1])
        if len(below) != 1 or below[0].affine or below[0].masks:
            return None
        turned = {"mul": "div", "div": "mul"}
        inverse = replace(
            below[0],
            scaling=tuple(replace(f, inverse=not f.inverse) for f in below[0].scaling),
            hoisted=tuple((turned[how], factor) for how, factor in below[0].hoisted),
        )
        return self.product([self.terms(node.args[0]), (inverse,)])

    def _selected(self, node: Node) -> tuple[Term, ...]:
        """where(c, a, b) = where(c, a, 0) + where(c, 0, b)."""
        condition, *branches = node.args
        found: list[Term] = []
        for value, branch in zip((True, False), branches, strict=True):
            op = self.nodes[branch].op
            if not (isinstance(op, Constant) and op.value == 0):
                mask = (condition, value)
                self.given.append(mask)
                found += [replace(t, masks=(mask, *t.masks)) for t in self.terms(branch)]
                self.given.pop()
        return tuple(found)

    def _rounded(self, term: Term, dtype: str) -> Term:
        """A term under a cast: a single factor keeps it, beside numbers that go behind the sum; a
        product is not rounded."""
        fixed = [one for one in term.scaling if self.fixed(one.node) and not one.cast]
        rest = [one for one in term.scaling if one not in fixed]
        if len(rest) != 1 or term.affine or rest[0].inverse:
            return term
        behind = tuple(("div" if one.inverse else "mul", one.node) for one in fixed)
        own = replace(rest[0], cast=dtype)
        return replace(term, scaling=(own,), hoisted=(*term.hoisted, *behind))

    def check_size(self, term: Term) -> None:
        """A term of many affine factors needs a state for every choice among their changes."""
        states = math.prod(1 + len(self.basis(e) or ()) for e in term.affine)
        if states > _MAX_STATES:
            raise NotDerivable(f"a product that needs {states} states beside it")

    # -- extremes

    def extreme(self, position: int, kind: str) -> Term:
        """The body of a max or min, which a positive ratio or a shift keeps in order.

        A body that scales must be positive: an identity times a ratio of 0 would count otherwise.
        """
        if self.shifts(position):
            return Term(affine=(position,))
        found = self.terms(position)
        term = found[0]
        plain = len(found) == 1 and term.sign == 1 and not term.affine and not term.masks
        factors = [f.node for f in term.scaling] + [node for _, node in term.hoisted]
        if not plain or not all(self.positive(node) for node in factors):
            raise NotDerivable(
                f"a {kind} over {self.axis} of node {position}, whose order may change as it moves"
            )
        return term

    def positive(self, position: int) -> bool:
        """Certainly above 0, by the form of the expression."""
        node = self.nodes[position]
        if isinstance(node.op, Constant):
            return node.op.value > 0
        if isinstance(node.op, Cast):
            return is_float(node.dtype) and self.positive(node.args[0])
        if isinstance(node.op, Reduce):
            return self.positive(node.args[0])
        if not isinstance(node.op, Map):
            return False
        if node.op.function in ("exp", "sigmoid"):
            return True
        keeps = node.op.function in ("add", "mul", "div", "sqrt", "rsqrt", "max", "min")
        return keeps and all(self.positive(arg) for arg in node.args)
