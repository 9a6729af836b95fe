"""Every rule, on drawn operands: what it makes of a program is worth the same.

Numbers are whole and small, so that float64 has sums and products of them exactly; quotients are
compared as far as it has digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ir.builder import Graph, cast, contract, where
from ir.functions import exp
from ir.ops.map import Constant
from ir.ops.reduce import Contract, Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.canonical import canonical
from ir.rewrite.forms import applied, forms_of, rewritten
from ir.rewrite.patterns import Pattern, matches, parsed
from ir.rewrite.rules import RULES, Rule
from ir.rewrite.work import Rates
from ir.tiles import Tile, apply

AXES = {"i": 3, "j": 2, "k": 4, "l": 3}
BY_NAME = {rule.name: rule for rule in RULES}


def words(pattern: Pattern) -> Iterator[str]:
    if pattern.is_word:
        yield pattern.head
    for arg in pattern.args:
        yield from words(arg)


def composed(
    pattern: Pattern, tiles: dict[str, Tile], over: dict[str, tuple[str, ...]], data: st.DataObject
) -> Tile:
    """The pattern's tile, sums being over drawn axes that their operands have."""
    if pattern.is_word:
        return tiles[pattern.head]
    args = [composed(arg, tiles, over, data) for arg in pattern.args]
    if pattern.head not in ("sum", "contract"):
        return apply(pattern.head, *args)
    have = sorted({axis for arg in args for axis in arg.axes})
    assume(have)
    if pattern.over not in over:
        some = st.lists(st.sampled_from(have), unique=True, min_size=1)
        over[pattern.over] = tuple(data.draw(some, label=pattern.over))
    axes = over[pattern.over]
    assume(set(axes) <= set(have))
    return total(args[0], *axes) if pattern.head == "sum" else build_product(args[0], args[1], axes)


def drawn(rule: Rule, data: st.DataObject) -> Program:
    """A program whose output is the rule's left side, of tiles with drawn axes."""
    left = parsed(rule.left)
    g = Graph("drawn")
    axes = {axis.name: axis for axis in g.axes(**AXES)}
    numbers = rule.name == "one-number"
    tiles = {}
    for word in dict.fromkeys(words(left)):
        own = data.draw(st.lists(st.sampled_from("ijkl"), unique=True, max_size=3), label=word)
        if numbers and word in "cd":
            tile = g.constant(data.draw(st.integers(1, 5)), "f64")
        elif left.head == "where" and word == "z":
            tile = g.constant(0, "f64")
        else:
            tile = g.input(word, tuple(axes[name] for name in own), "f64")
        if left.head == "where" and word in "cs":
            tile = tile > 2 if word == "c" else weights(tile)
        tiles[word] = tile
    root = composed(left, tiles, {}, data)
    g.output("y", root + g.constant(1, "f64"), "f64")
    return g.program()


def whole(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {s.name: rng.integers(1, 4, s.shape).astype(np.float64) for s in program.inputs}


@pytest.mark.parametrize("name", sorted(BY_NAME))
@settings(max_examples=35, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
@pytest.mark.alike(2)
def test_both_sides_are_equal(name: str, data: st.DataObject, seed: int) -> None:
    rule = BY_NAME[name]
    program = drawn(rule, data)
    inputs = whole(program, seed)
    plain = evaluate(program, inputs)["y"]
    for root in range(len(program.nodes)):
        for made in applied(rule, program, root):
            found = evaluate(made, inputs)["y"]
            if "div" in rule.left:
                np.testing.assert_allclose(found, plain, rtol=1e-12)
            else:
                assert np.array_equal(found, plain)


def sample(name: str) -> Program:
    """A program to which a rule applies."""
    g = Graph("sample")
    i, j, k, n = g.axes(**AXES)
    a, b = g.input("a", (i, k), "f32"), g.input("b", (k, j), "f32")
    rows, part = g.input("s", (i,), "f32"), g.input("p", (k,), "f32")
    ab, part_of_columns = build_product(a, b, ("k",)), g.input("q", (j,), "f32")
    made = {
        "scale-behind": lambda: build_product(a * rows, b, ("k",)),
        "quotient-behind": lambda: build_product(a / rows, b, ("k",)),
        "scale-behind-sum": lambda: total(a * rows, "k"),
        "quotient-behind-sum": lambda: total(a / rows, "k"),
        "scale-before": lambda: ab * rows,
        "scale-across": lambda: build_product(a * part, b, ("k",)),
        "one-sum": lambda: total(build_product(a, g.input("c", (k, j), "f32"), ("k",)), "j"),
        "one-sum-of-sums": lambda: total(total(a, "k"), "i"),
        "regroup": lambda: build_product(ab, g.input("c", (j, n), "f32"), ("j",)),
        "regroup-sum": lambda: total(ab * part_of_columns, "j"),
        "sum-before": lambda: build_product(a, b, ("k", "i")),
        "common-product": lambda: ab + build_product(a, g.input("c", (k, j), "f32"), ("k",)),
        "common-factor": lambda: a * part + a * g.input("c", (k,), "f32"),
        "each-addend": lambda: build_product(a + g.input("c", (i, k), "f32"), b, ("k",)),
        "each-side": lambda: build_product(a - g.input("c", (i, k), "f32"), b, ("k",)),
        "addends-apart": lambda: total(a * b + g.input("c", (i, j, k), "f32"), "k"),
        "less-apart": lambda: total(a * b - g.input("c", (i, j, k), "f32"), "k"),
        "from-apart": lambda: total(g.input("c", (i, j, k), "f32") - a * b, "k"),
        "squares-apart": lambda: squared(g.input("x", (i, k), "i32") - g.input("z", (j, k), "i32")),
        "quotient-chosen": lambda: where(part > 0, a / weights(rows * part), 0.0),
        "quotient-otherwise": lambda: where(part > 0, 0.0, a / weights(rows * part)),
        "quotients-cancel": lambda: (a / rows) / (part / rows),
        "one-number": lambda: (a * 2.0) * 3.0,
    }
    found = made[name]()
    g.output("y", found, found.dtype)
    return g.program()


def weights(tile: Tile) -> Tile:
    """The sum of a softmax's weights along the last axis."""
    if not tile.axes:
        return tile.graph.add(Constant(1, tile.dtype))
    most = tile.graph.add(Reduce("max", tile.axes[-1:]), tile)
    return total(exp(tile - most), *tile.axes[-1:])


def guarded(g: Graph) -> Tile:
    """A choice that keeps from dividing by 0."""
    i, k = g.axes(i=3, k=4)
    s = g.input("s", (i,), "f32")
    return where(s > 0, g.input("a", (i, k), "f32") / s, 0.0)


def test_a_choice_that_keeps_from_dividing_stays() -> None:
    g = Graph("guarded")
    g.output("y", guarded(g), "f32")
    program = g.program()
    for name in ("quotient-chosen", "quotient-otherwise"):
        for root in range(len(program.nodes)):
            assert not [*applied(BY_NAME[name], program, root)]


def squared(tile: Tile) -> Tile:
    return total(tile * tile, "k")


def build_product(left: Tile, right: Tile, over: Sequence[str]) -> Tile:
    return left.graph.add(Contract(tuple(over), "f32"), left, right)


def total(tile: Tile, *over: str) -> Tile:
    return tile.graph.add(Reduce("sum", over), tile)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_used(rule: Rule) -> None:
    """And says what it does, in words."""
    program = sample(rule.name)
    made = [p for root in range(len(program.nodes)) for p in applied(rule, program, root)]
    assert made
    assert canonical(program) not in {canonical(one) for one in made}
    assert rule.why
    assert rule.rounding
    assert str(parsed(rule.left)) == rule.left
    assert str(parsed(rule.right)) == rule.right


def test_nothing_is_taken_across_a_cast() -> None:
    """A factor that was rounded with its product stays there."""
    g = Graph("rounded")
    i, j, k = g.axes(i=3, j=4, k=5)
    a, b = g.input("a", (i, k), "bf16"), g.input("b", (k, j), "bf16")
    scaled = cast(a * g.input("s", (i,), "f32"), "bf16")
    g.output("y", build_product(scaled, b, ("k",)), "f32")
    program = g.program()
    rule = BY_NAME["scale-behind"]
    assert not [p for root in range(len(program.nodes)) for p in applied(rule, program, root)]


def test_a_tile_whose_axes_change_their_order_is_read_at_the_same_places() -> None:
    g = Graph("read")
    i, j, k = g.axes(i=4, j=3, k=5)
    a, b, s = g.input("a", (i, k), "f64"), g.input("b", (k, j), "f64"), g.input("s", (j,), "f64")
    product = contract(a, b * s, over=k, acc="f64")
    g.output("y", product.at(i=i - 1, j=2 - j, fill=0), "f64", (i, j))
    program = g.program()
    inputs = whole(program, 0)
    plain = evaluate(program, inputs)["y"]
    made = [one for _, _, one in rewritten(program)]
    orders = {
        node.axes for one in made for node in one.nodes if node.op.name in ("map", "contract")
    }
    assert ("j", "i") in orders  # as written it is ("i", "j")
    for one in made:
        assert np.array_equal(evaluate(one, inputs)["y"], plain)


RATES = Rates({"f32": 1e11}, 1e10, 1e10)


def chain(extents: tuple[int, ...]) -> Program:
    """A product of matrices, grouped from the left."""
    g = Graph("chain")
    axes = g.axes(**{f"a{n}": extent for n, extent in enumerate(extents)})
    found = g.input("t0", axes[:2], "f32")
    for number, pair in enumerate(list(pairwise(axes))[1:], 1):
        found = build_product(found, g.input(f"t{number}", pair, "f32"), (pair[0].name,))
    g.output("y", found, "f32", (axes[0], axes[-1]))
    return g.program()


def least_products(extents: tuple[int, ...]) -> int:
    """Multiplications of the best grouping (Godbole 1973), by all of them."""
    count = len(extents) - 1
    best = {(n, n): 0 for n in range(count)}
    for width in range(1, count):
        for low in range(count - width):
            high = low + width
            best[low, high] = min(
                best[low, mid] + best[mid + 1, high]
                + extents[low] * extents[mid + 1] * extents[high + 1]
                for mid in range(low, high)
            )  # fmt: skip
    return best[0, count - 1]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from((8, 40, 200, 1000)), min_size=4, max_size=7).map(tuple))
def test_chains_of_matrices_find_their_best_order(extents: tuple[int, ...]) -> None:
    forms = forms_of(chain(extents), Rates({"f32": 1.0}, 1.0, 1e30)).offered
    assert min(form.program.flops for form in forms) <= 1.12 * 2 * least_products(extents)


def test_forms_are_distinct_named_by_what_they_are_and_the_written_one_is_first() -> None:
    program = chain((1000, 1000, 1000, 8))
    forms = forms_of(program, RATES)
    assert forms.offered[0].program == program
    assert forms.offered[0].name == "written"
    names = [form.name for form in forms.offered]
    assert len(set(names)) == len(names) == 2
    assert names == [form.name for form in forms_of(program, RATES).offered]
    assert forms.complete
    assert len({canonical(form.program) for form in forms.offered}) == len(forms.offered)


def test_words_of_a_pattern_stand_for_the_same_tile() -> None:
    g = Graph("squares")
    (i,) = g.axes(i=3)
    a, b = g.input("a", (i,), "f32"), g.input("b", (i,), "f32")
    g.output("y", apply("add", a * a, a * b), "f32")
    program = g.program()
    square = parsed("mul(x, x)")
    assert [n for n in range(len(program.nodes)) if list(matches(square, program, n))] == [2]


@pytest.mark.parametrize("text", ["", "f(a)", "mul(a, b) c", "mul[(a)"])
def test_a_pattern_that_is_none(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parsed(text)
