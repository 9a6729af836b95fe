"""Rules that make equal programs: data, of which `forms` makes the programs.

Each rule says when it holds, why both sides are equal, and what it does to rounding. They are laws
of sums and products; nothing is taken across a cast, which rounds. `tests/rewrite/test_rules.py`
proves each on drawn operands, in whole numbers where that is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ir.dtypes import is_float
from ir.ops.map import Map
from ir.ops.reduce import Reduce
from ir.rewrite.patterns import Axes, Match

SAME = "the same roundings in another order"
FEWER = "fewer roundings"
REGROUPED = "sums of the same products are rounded in other groups"
FACTORED = "what is added up is rounded before it is multiplied, not behind"

Condition = Callable[[Match], Mapping[str, Axes] | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`left` may be replaced by `right` where `condition` gives the axes of the right side.

    A rule that `cancels` may make differences of numbers that are large beside the result, so that
    what a right kernel may be off by is looked up in the form that runs.
    """

    name: str
    left: str
    right: str
    condition: Condition
    why: str
    rounding: str
    cancels: bool = False


def _always(match: Match) -> Mapping[str, Axes] | None:
    return {}


def _out(match: Match) -> Mapping[str, Axes] | None:
    """Axes along which `s` varies stay outside (O), the others are summed first (I)."""
    over = match.over["R"]
    inner = tuple(a for a in over if a not in match.axes("s"))
    outer = tuple(a for a in over if a in match.axes("s"))
    return {"I": inner, "O": outer} if inner else None


def _out_of_product(match: Match) -> Mapping[str, Axes] | None:
    found = _out(match)
    both = match.axes("a") | match.axes("b")
    return found if found and set(found["I"]) <= both else None


def _out_of_sum(match: Match) -> Mapping[str, Axes] | None:
    found = _out(match)
    return found if found and set(found["I"]) <= match.axes("a") else None


def _into(match: Match) -> Mapping[str, Axes] | None:
    """A scale goes to a factor that has all of its axes, none of them summed."""
    scale = match.axes("s")
    within = scale <= match.axes("a") and not scale & set(match.over["R"])
    return {} if within else None


def _across(match: Match) -> Mapping[str, Axes] | None:
    """A factor of one operand is one of the other, which has its axes."""
    return {} if match.axes("s") <= match.axes("b") and match.axes("b") != match.axes("s") else None


def _nested(match: Match) -> Mapping[str, Axes] | None:
    return {"U": (*match.over["R"], *match.over["S"])}


def _together(match: Match) -> Mapping[str, Axes] | None:
    """(a b) c as a (b c): b and c are summed over what a does not have."""
    inner, outer = match.over["S"], match.over["R"]
    if set(inner) & match.axes("c"):
        return None
    union = (*outer, *inner)
    first = tuple(axis for axis in union if axis not in match.axes("a"))
    rest = tuple(axis for axis in union if axis in match.axes("a"))
    if not first or not rest or not set(first) <= match.axes("b") | match.axes("c"):
        return None
    return {"T": first, "O": rest}


def _alone(match: Match) -> Mapping[str, Axes] | None:
    """What only one factor varies along is summed before."""
    over = match.over["R"]
    own = tuple(axis for axis in over if axis not in match.axes("b"))
    rest = tuple(axis for axis in over if axis in match.axes("b"))
    return {"P": own, "Q": rest} if own else None


def _alike(match: Match) -> Mapping[str, Axes] | None:
    """Neither addend is spread over axes that the other alone has."""
    return {} if match.axes("b") == match.axes("c") else None


def _spread(match: Match) -> Mapping[str, Axes] | None:
    """Both addends are summed over all axes."""
    over = set(match.over["R"])
    each = (match.axes(word) | match.axes("c") for word in ("a", "b"))
    return {} if all(over <= axes for axes in each) else None


def _products(match: Match) -> Mapping[str, Axes] | None:
    """Both addends have all axes that are summed, and a and b have some that the other has not."""
    left, right, over = match.axes("a"), match.axes("b"), set(match.over["R"])
    outer = left - right and right - left
    return {} if outer and over <= left | right and over <= match.axes("c") else None


def _whole(match: Match) -> Mapping[str, Axes] | None:
    """Whole numbers, of which squares are exact, and that vary along axes of their own."""
    whole = not is_float(match.program.nodes[match.root].dtype)
    left, right, over = match.axes("a"), match.axes("b"), set(match.over["R"])
    outer = left - right - over and right - left - over
    return {} if whole and outer and over <= left & right else None


def _or_nothing(match: Match) -> Mapping[str, Axes] | None:
    """What is not chosen is 0, and stays so: the divisor is a sum of weights of which the largest
    is 1. A choice may be there to keep from dividing by 0."""
    return {} if match.constant("z") == 0 and _is_total(match, match.tiles["s"]) else None


def _is_total(match: Match, position: int) -> bool:
    """Whether a value is a sum of exp(x - max x)."""
    nodes = match.program.nodes
    total = nodes[position]
    if not isinstance(total.op, Reduce) or total.op.kind != "sum":
        return False
    weight = nodes[total.args[0]]
    if weight.op != Map("exp") or nodes[weight.args[0]].op != Map("sub"):
        return False
    of, largest = nodes[weight.args[0]].args
    most = nodes[largest].op
    same = isinstance(most, Reduce) and most.kind == "max" and {*most.over} == {*total.op.over}
    return same and nodes[largest].args == (of,)


def _numbers(match: Match) -> Mapping[str, Axes] | None:
    known = match.constant("c") is not None and match.constant("d") is not None
    return {} if known and match.constant("a") is None else None


RULES: tuple[Rule, ...] = (
    Rule(
        "scale-behind", "contract[R](mul(a, s), b)", "sum[O](mul(contract[I](a, b), s))",
        _out_of_product, "a factor that does not vary along a sum is a factor of the sum", FEWER,
    ),
    Rule(
        "quotient-behind", "contract[R](div(a, s), b)", "sum[O](div(contract[I](a, b), s))",
        _out_of_product, "a divisor that does not vary along a sum divides the sum", FEWER,
    ),
    Rule(
        "scale-behind-sum", "sum[R](mul(a, s))", "sum[O](mul(sum[I](a), s))",
        _out_of_sum, "a factor that does not vary along a sum is a factor of the sum", FEWER,
    ),
    Rule(
        "quotient-behind-sum", "sum[R](div(a, s))", "sum[O](div(sum[I](a), s))",
        _out_of_sum, "a divisor that does not vary along a sum divides the sum", FEWER,
    ),
    Rule(
        "scale-before", "mul(contract[R](a, b), s)", "contract[R](mul(a, s), b)",
        _into, "a factor of a sum is a factor of what is summed", REGROUPED,
    ),
    Rule(
        "scale-across", "contract[R](mul(a, s), b)", "contract[R](a, mul(b, s))",
        _across, "products are the same in any grouping", SAME,
    ),
    Rule(
        "one-sum", "sum[R](contract[S](a, b))", "contract[U](a, b)",
        _nested, "a sum of sums is one over all axes", REGROUPED,
    ),
    Rule(
        "one-sum-of-sums", "sum[R](sum[S](a))", "sum[U](a)",
        _nested, "a sum of sums is one over all axes", REGROUPED,
    ),
    Rule(
        "regroup", "contract[R](contract[S](a, b), c)", "contract[O](a, contract[T](b, c))",
        _together, "products of matrices are the same in any grouping", REGROUPED,
    ),
    Rule(
        "regroup-sum", "sum[R](mul(contract[S](a, b), c))", "contract[O](a, contract[T](b, c))",
        _together, "products of matrices are the same in any grouping", REGROUPED,
    ),
    Rule(
        "sum-before", "contract[R](a, b)", "contract[Q](sum[P](a), b)",
        _alone, "what only one factor varies along is summed before it is multiplied", REGROUPED,
    ),
    Rule(
        "common-product", "add(contract[R](a, b), contract[R](a, c))", "contract[R](a, add(b, c))",
        _alike, "A B + A C = A (B + C)", FACTORED, cancels=True,
    ),
    Rule(
        "common-factor", "add(mul(a, b), mul(a, c))", "mul(a, add(b, c))",
        _always, "a b + a c = a (b + c)", FACTORED, cancels=True,
    ),
    Rule(
        "each-addend", "contract[R](add(a, b), c)", "add(contract[R](a, c), contract[R](b, c))",
        _spread, "(A + B) C = A C + B C", FACTORED, cancels=True,
    ),
    Rule(
        "each-side", "contract[R](sub(a, b), c)", "sub(contract[R](a, c), contract[R](b, c))",
        _spread, "(A - B) C = A C - B C", FACTORED, cancels=True,
    ),
    Rule(
        "addends-apart", "sum[R](add(mul(a, b), c))", "add(sum[R](mul(a, b)), sum[R](c))",
        _products, "the sum of A + B is that of A and that of B", REGROUPED, cancels=True,
    ),
    Rule(
        "less-apart", "sum[R](sub(mul(a, b), c))", "sub(sum[R](mul(a, b)), sum[R](c))",
        _products, "the sum of A - B is that of A less that of B", REGROUPED, cancels=True,
    ),
    Rule(
        "from-apart", "sum[R](sub(c, mul(a, b)))", "sub(sum[R](c), sum[R](mul(a, b)))",
        _products, "the sum of A - B is that of A less that of B", REGROUPED, cancels=True,
    ),
    Rule(
        "squares-apart", "sum[R](mul(sub(a, b), sub(a, b)))",
        "sub(add(sum[R](mul(a, a)), sum[R](mul(b, b))), "
        "add(contract[R](a, b), contract[R](a, b)))",
        _whole, "(A - B)^2 = A^2 + B^2 - 2 A B", SAME,
    ),
    Rule(
        "quotient-chosen", "where(c, div(a, s), z)", "div(where(c, a, z), s)",
        _or_nothing, "0 divided by a sum of weights is 0", SAME,
    ),
    Rule(
        "quotient-otherwise", "where(c, z, div(a, s))", "div(where(c, z, a), s)",
        _or_nothing, "0 divided by a sum of weights is 0", SAME,
    ),
    Rule(
        "quotients-cancel", "div(div(a, s), div(b, s))", "div(a, b)",
        _always, "what divides both divides neither", FEWER,
    ),
    Rule(
        "one-number", "mul(mul(a, c), d)", "mul(a, mul(c, d))",
        _numbers, "products are the same in any grouping", SAME,
    ),
)  # fmt: skip
