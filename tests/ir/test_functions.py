"""Functions and operators of tiles mean what numpy and Python say; what they refuse, and how."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.expectation import error_model
from ir import (
    Graph,
    Program,
    ProgramError,
    Tile,
    apply,
    bitcast,
    cast,
    cos,
    evaluate,
    exp,
    floor,
    log,
    log1p,
    lookup,
    parse,
    philox,
    philox_uniform,
    popcount,
    reduce,
    sin,
    where,
)
from ir.dtypes import from_float, numpy_dtype, whole_range
from ir.oracle import answers
from ir.ranges import integer_range
from tests.judging import bounds_of

Array = np.ndarray[Any, Any]
WORDS: Any = ["x"]
INTEGERS = ("u8", "i8", "i32", "i64")


def made(function: Callable[..., Tile], *dtypes: str, extent: int = 1) -> Program:
    """A program of one function of tensors A, B, .. of these dtypes."""
    g = Graph("f")
    (i,) = g.axes(i=extent)
    g.output("Y", function(*(g.input("ABCD"[n], (i,), d) for n, d in enumerate(dtypes))))
    return g.program()


def run(function: Callable[..., Tile], *arrays: Any, dtypes: tuple[str, ...] = ()) -> Array:
    dtypes = dtypes or ("f32",) * len(arrays)
    program = made(function, *dtypes, extent=len(arrays[0]))
    assert parse(str(program)) == program
    stored = {
        "ABCD"[n]: np.array(a, numpy_dtype(d))
        for n, (a, d) in enumerate(zip(arrays, dtypes, strict=True))
    }
    return evaluate(program, stored)["Y"]


@pytest.mark.parametrize("name", ["sin", "cos", "log1p", "expm1", "ceil", "trunc", "floor"])
def test_floats_are_numpys(name: str) -> None:
    x = np.array([0.5, -0.75, 1e5, -0.0, 2.5, np.nan, np.inf], np.float32)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x.astype(np.float64))
    assert np.array_equal(run(lambda a: apply(name, a), x), wanted, equal_nan=True)


def test_rounding_is_to_even() -> None:
    assert run(round, [0.5, 1.5, -2.5, 2.51]).tolist() == [0, 2, -2, 3]
    assert run(math.floor, [-0.5]).tolist() == [-1]
    assert run(math.ceil, [-0.5]).tolist() == [0]
    assert run(math.trunc, [-1.5]).tolist() == [-1]
    assert run(abs, [-1.5]).tolist() == [1.5]
    assert run(round, [3], dtypes=("i32",)).tolist() == [3]


@given(st.data(), st.sampled_from(INTEGERS))
def test_whole_numbers_are_pythons(data: st.DataObject, dtype: str) -> None:
    low, high = whole_range(dtype)
    x = data.draw(st.lists(st.integers(low, high), min_size=1, max_size=9))
    y = data.draw(st.lists(st.integers(low, high), min_size=len(x), max_size=len(x)))
    both = (dtype, dtype)
    width = 64 if dtype == "i64" else 32

    def wrapped(value: int) -> int:
        return (value + (1 << width - 1)) % (1 << width) - (1 << width - 1)

    assert run(lambda a, b: a % b, x, y, dtypes=both).tolist() == [
        p % q if q else 0 for p, q in zip(x, y, strict=True)
    ]
    assert run(lambda a, b: a // b, x, y, dtypes=both).tolist() == [
        wrapped(p // q) if q else 0 for p, q in zip(x, y, strict=True)
    ]
    for symbol in "&|^":
        wanted = [eval(f"{p} {symbol} {q}") for p, q in zip(x, y, strict=True)]
        assert run(lambda a, b, s=symbol: eval(f"a {s} b"), x, y, dtypes=both).tolist() == wanted
    assert run(lambda a: ~a, x, dtypes=(dtype,)).tolist() == [~p for p in x]
    amount = data.draw(st.integers(0, width - 1))
    assert run(lambda a: a << amount, x, dtypes=(dtype,)).tolist() == [
        wrapped(p << amount) for p in x
    ]
    assert run(lambda a: a >> amount, x, dtypes=(dtype,)).tolist() == [p >> amount for p in x]
    bits = {"u8": 8, "i8": 8, "i32": 32, "i64": 64}[dtype]
    assert run(popcount, x, dtypes=(dtype,)).tolist() == [(p % (1 << bits)).bit_count() for p in x]


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_numbers_stand_on_either_side(x: int, number: int) -> None:
    for text in ("a % n", "n % a", "a // n", "n // a", "a & n", "n & a", "n | a", "n ^ a"):
        if (x == 0 and text in ("n % a", "n // a")) or (number == 0 and text[0] == "a"):
            continue
        (found,) = run(lambda a, t=text: eval(t, {"a": a, "n": number}), [x], dtypes=("i32",))
        wanted = eval(text, {"a": x, "n": number})
        assert found == (wanted if wanted != 2**31 else -(2**31)), text
    (found,) = run(lambda a: 5 << (a & 15), [x], dtypes=("i32",))
    assert found == 5 << (x & 15)
    (found,) = run(lambda a: (-(10**6)) >> (a & 15), [x], dtypes=("i32",))
    assert found == -(10**6) >> (x & 15)


def test_shifts_beyond_the_width_leave_nothing() -> None:
    x, n = [5, -5, 5, -5], [32, 32, -1, 100]
    assert run(lambda a, b: a << b, x, n, dtypes=("i32", "i32")).tolist() == [0, 0, 0, 0]
    assert run(lambda a, b: a >> b, x, n, dtypes=("i32", "i32")).tolist() == [0, -1, 0, -1]


def test_truth_values_are_joined_as_such() -> None:
    a, b = [0, 0, 1, 1], [0, 1, 0, 1]
    for text, wanted in (("a & b", [0, 0, 0, 1]), ("a | b", [0, 1, 1, 1]), ("a ^ b", [0, 1, 1, 0])):
        found = run(lambda a, b, t=text: eval(t), a, b, dtypes=("bool", "bool"))
        assert found.dtype == bool
        assert found.tolist() == [bool(one) for one in wanted]
    assert run(lambda a: ~a, a, dtypes=("bool",)).tolist() == [True, True, False, False]
    found = run(lambda a, b: (a & b) + 0, [1, 1], [6, 7], dtypes=("bool", "i32"))
    assert found.tolist() == [0, 1]


def test_bits_are_read_as_another_type() -> None:
    x = np.array([1.0, -2.5, 0.1], np.float32)
    assert run(lambda a: bitcast(a, "i32"), x).tolist() == x.view(np.int32).tolist()
    assert (
        run(lambda a: bitcast(a, "f32"), x.view(np.int32), dtypes=("i32",)).tolist() == x.tolist()
    )
    both = run(lambda a: bitcast(bitcast(a, "u8"), "e4m3"), [0x38, 0xB8], dtypes=("e4m3",))
    assert both.tolist() == [1, -1]


def test_a_table_is_read_inside() -> None:
    table = [0.5, -1, 2.25]
    found = run(lambda a: lookup(table, a), [-5, 0, 1, 2, 3, 99], dtypes=("i32",))
    assert found.tolist() == [0.5, 0.5, -1, 2.25, 2.25, 2.25]
    whole = run(lambda a: lookup(range(256), a, "u8"), [0, 255], dtypes=("u8",))
    assert whole.tolist() == [0, 255]
    narrow = run(lambda a: lookup([0.1], a, "bf16"), [0], dtypes=("i32",))
    assert narrow.tolist() == [0.10009765625]


# The known answers of the authors' library, for ten rounds: counter, key, words.
ANSWERS = (
    ((0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((-1, -1), -1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x85A308D3243F6A88, 0x0370734413198A2E),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("counters", "key", "words"), ANSWERS)
def test_known_answers(counters: tuple[int, int], key: int, words: tuple[int, ...]) -> None:
    low, high = (np.uint64(c % (1 << 64)).astype(np.int64) for c in counters)
    types = ("i64", "i64")
    found = [
        int(run(lambda a, b, w=word: philox(a, b, key, w), [low], [high], dtypes=types)[0])
        for word in range(4)
    ]
    assert found == list(words)
    (share,) = run(lambda a, b: philox_uniform(a, b, key, 0), [low], [high], dtypes=types)
    assert share == (words[0] >> 8) / 2**24


def test_four_neighbours_of_a_stream_share_a_counter() -> None:
    numbers, types = np.arange(-8, 40), ("i64",)
    found = run(lambda a: philox_uniform(a, 3, 11), numbers, dtypes=types)
    for word in range(4):
        blocks = numbers[word::4] // 4
        bits = run(lambda a, w=word: philox(a, 3, 11, w), blocks, dtypes=types)
        assert found[word::4].tolist() == ((bits >> 8) / 2**24).tolist()


def test_axes_and_whole_numbers_are_numbers_of_a_stream_too() -> None:
    g = Graph("u")
    i, j = g.axes(i=8, j=5)
    g.output("axis", philox_uniform(2 * j + 1, g.iota(i)), "f32", (i, j))
    g.output("tile", philox_uniform(g.coordinate(2 * j + 1), g.iota(i)), "f32", (i, j))
    g.output("seven", philox_uniform(7, g.iota(i)))
    found = evaluate(g.program(), {})
    assert (found["axis"] == found["tile"]).all()
    assert (found["seven"] == found["axis"][:, 3]).all()


def test_uniform_numbers_are_uniform() -> None:
    g = Graph("u")
    (i,) = g.axes(i=1 << 14)
    g.output("U", philox_uniform(g.iota(i), seed=7))
    found = evaluate(g.program(), {})["U"]
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.bincount((found * 16).astype(int), minlength=16)
    assert ((counts - 1024) ** 2 / 1024).sum() < 45  # chi squared of 15: one in 10^4 is above


@pytest.mark.parametrize(
    ("function", "dtypes", "message"),
    [
        (lambda a: a % 3, ("f32",), "f: mod: operand 0 is f32; it takes whole numbers"),
        (lambda a: a & 1.5, ("i32",), "f: bitand: operand 1 is f32"),
        (lambda a: 2.0 // a, ("i32",), "f: floordiv: operand 0 is f32"),
        (lambda a: ~a, ("bf16",), "f: xor: operand 0 is bf16"),
        (lambda a: a & (1 << 70), ("i32",), "has no room in i64"),
        (lambda a: round(a, 2), ("f32",), "f: round(tile, 2): to whole numbers only"),
        (lambda a: bitcast(a, "i64"), ("f32",), "bitcast: f32 has 32 bits, i64 has 64"),
        (lambda a: bitcast(a, "bool"), ("u8",), "bitcast: u8 to bool"),
        (lambda a: lookup([], a), ("i32",), "lookup: 0 entries; a table has 1 to 256"),
        (lambda a: lookup([0] * 257, a), ("i32",), "lookup: 257 entries"),
        (lambda a: lookup([1, math.nan], a), ("i32",), "lookup: entry 1 is nan, which is no f32"),
        (lambda a: lookup([1, 300], a, "u8"), ("i32",), "lookup: entry 1 is 300, which is no u8"),
        (lambda a: lookup([1, 0.5], a, "i8"), ("i32",), "lookup: entry 1 is 0.5, which is no i8"),
        (lambda a: lookup(WORDS, a), ("i32",), "lookup: entry 0 is 'x'; entries are numbers"),
        (lambda a: lookup([1], a), ("f32",), "lookup: operand 0 is f32"),
        (lambda a: philox(a, 1 << 64), ("i32",), "philox: 18446744073709551616 has no room"),
        (lambda a: philox(a), ("f32",), "philox: operand 0 is f32"),
        (lambda a: philox_uniform(a), ("f32",), "philox: operand 0 is f32"),
        (lambda a: philox_uniform(1.5, a), ("i32",), "philox: operand"),
    ],
)
def test_refusals(function: Callable[[Tile], Tile], dtypes: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        made(function, *dtypes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("map(%0, function=lookup)", "lookup: it needs a table"),
        ("map(%0, function=bitcast)", "bitcast: it needs the dtype"),
        ("map(%0, function=popcount, dtype=i8)", "a dtype belongs to lookup and bitcast"),
        ("map(%0, function=popcount, table=[1])", "a table belongs to lookup"),
    ],
)
def test_texts_are_checked(line: str, message: str) -> None:
    head = "program f\naxis i = 3\ninput A i32[3]\n%0 = load(tensor=A, index=[i]) -> i32(i)\n"
    with pytest.raises(ProgramError, match=message):
        parse(f"{head}%1 = {line} -> i32(i)\n")


# -- how far kernels may be off


def reaches(program: Program, **inputs: Array) -> Array:
    return answers(program, inputs, error_model(program))["Y"].reach


def test_rules_of_error() -> None:
    """Room for a right kernel in f32, none for one that is wrong in the sixth digit."""
    x = np.array([0.3, 1.0, 50.0, 9e4], np.float32)
    for function in (sin, cos, log1p):
        room = reaches(made(function, "f32", extent=4), A=x)
        assert (room > 2**-25 * 0.05).all()
        assert (room < 2e-6 + 2e-6 * np.log1p(x)).all()
    far = reaches(made(sin, "f32", extent=2), A=np.array([1e7, 1e30], np.float32))
    assert 0.1 < far[0] < 2
    assert far[1] >= 2
    moved = reaches(made(lambda a: sin(a * 3.0), "f32", extent=1), A=np.array([9e4], np.float32))
    assert 0.01 < moved[0] < 0.1  # the argument is off by a rounding


def test_whole_numbers_are_exact_unless_a_float_decides() -> None:
    exact = made(lambda a: (a ^ 5) % 7, "i32", extent=2)
    assert not reaches(exact, A=np.array([3, 4], np.int32)).any()
    truncated = made(lambda a: cast(a * 1.5, "i32") % 4, "f32", extent=2)
    room = reaches(truncated, A=np.array([2.0, 2.5], np.float32))  # 3 may be off by one, 3.75 is 3
    assert room.tolist() == [3, 0]


def test_what_may_fall_to_either_side_of_a_step_stays_so() -> None:
    """Sums whose error is drawn, just beside a step: a floor, and a cast of it, are off by 1."""
    g = Graph("f")
    i, j = g.axes(i=100, j=3)
    near = floor(reduce("sum", g.input("A", (i, j), "f32"), over=j) * 0.7)
    g.output("Y", cast(near, "i8"), "i8", (i,))
    large = np.linspace(20, 60, 100, dtype=np.float32)
    a = np.stack([large, -large - 7, np.full(100, 7 + 1 / 0.7 - 2e-6)], 1).astype(np.float32)
    program = g.program()
    assert (reaches(program, A=a) == 1).all()


def test_what_two_uncertain_numbers_decide() -> None:
    """Both off by 0.3 may change places at 1 and 1.5, which neither can alone."""
    near = made(lambda a, b: where(exp(a) < exp(b), 1, 0), "f32", "f32", extent=2)
    unit = 2.0**-24
    a = np.array([0.0, 0.0], np.float32)
    b = np.array([8 * unit, 2**10 * unit], np.float32)
    assert reaches(near, A=a, B=b).tolist() == [1, 0]


def test_a_choice_may_be_of_what_is_off_itself() -> None:
    """Chosen either way, and off by what the other one is."""
    x = np.array([1.0], np.float32)
    program = made(lambda a: where(exp(log(a)) < a, 2.0, sin(a * 1e5)), "f32", extent=1)
    found = answers(program, {"A": x}, error_model(program))["Y"]
    off = reaches(made(lambda a: sin(a * 1e5), "f32", extent=1), A=x)[0]
    assert off > 1e-3
    assert found.reach[0] > (abs(2 - np.sin(1e5)) + off) * (1 - 1e-6)


def test_what_was_rounded_on_the_way_is_another_number() -> None:
    """A kernel may round it or not: it may be less than what it was made of."""
    program = made(lambda a: where(cast(cast(a, "f16"), "f32") < a, 1, 0), "f32", extent=1)
    assert reaches(program, A=np.array([0.1], np.float32)).tolist() == [1]


def test_a_table_is_as_uncertain_as_its_index() -> None:
    program = made(lambda a: lookup([0, 10, 30], cast(a * 1.5, "i32")), "f32", extent=2)
    assert reaches(program, A=np.array([2 / 3, 1.0], np.float32)).tolist() == [20, 0]


def test_bits_of_what_is_rounded_are_off_by_as_much() -> None:
    program = made(lambda a: bitcast(a / 3.0, "i32"), "f32", extent=2)
    room = reaches(program, A=np.array([1.0, np.nan], np.float32))
    assert 1 <= room[0] <= 4
    assert room[1] == np.inf


@given(st.sampled_from(["mod", "floordiv", "shr", "bitand"]), st.integers(1, 9), st.data())
def test_ranges_hold(name: str, number: int, data: st.DataObject) -> None:
    program = made(lambda a: apply(name, a, number), "i8", extent=5)
    x = np.array(data.draw(st.lists(st.integers(-128, 127), min_size=5, max_size=5)), np.int8)
    bounds = integer_range(program, len(program.nodes) - 2)
    assert bounds is not None
    found = evaluate(program, {"A": x})["Y"]
    assert bounds[0] <= found.min()
    assert found.max() <= bounds[1]


def test_constants_of_narrow_floats_are_looked_up_as_they_are_stored() -> None:
    entries = [0.1 * n for n in range(16)]
    found = run(lambda a: lookup(entries, a, "bf16"), range(16), dtypes=("u8",))
    assert np.array_equal(from_float(found, "bf16"), from_float(np.array(entries), "bf16"))


def test_whether_a_number_is_zero_is_in_doubt_where_it_may_be_flushed() -> None:
    """As a truth value: e^-88 is too small for f32's normal numbers, e^-80 is not, 0 is certain."""
    program = made(lambda a: cast(cast(exp(a), "bool"), "i32"), "f32", extent=2)
    assert reaches(program, A=np.array([-88.0, -80.0], np.float32)).tolist() == [1, 0]
    plain = made(lambda a: cast(cast(a, "bool"), "i32"), "f32", extent=2)
    assert reaches(plain, A=np.array([0.0, 1e-30], np.float32)).tolist() == [0, 0]


def test_a_quotient_of_zero_is_zero() -> None:
    """Empty bins of a histogram: what is made of the others alone is known."""
    program = made(lambda a: where(a / 7.0 > 0, a / 7.0 * log(a / 7.0), 0.0), "f32", extent=2)
    found = reaches(program, A=np.array([0.0, 3.0], np.float32))
    assert found[0] == 0
    assert 0 < found[1] < 1e-5


def test_a_product_of_two_choices_in_doubt_may_be_what_neither_is_alone() -> None:
    """The sign of what cancels, and whether that sign is wanted: both are 0, and both may be 1."""
    g = Graph("cautious")
    (i,) = g.axes(i=2)
    old, new = (cast(g.input(name, (i,), "bf16"), "f32") for name in ("M", "G"))
    c = 0.9 * old + 0.1 * new
    sign = where(c > 0, 1.0, where(c < 0, -1.0, 0.0))
    g.output("S", sign * where(sign * new > 0, 1.0, 0.0), "f32", (i,))
    inputs = {
        "M": from_float(np.array([0.234375, 1.0]), "bf16"),
        "G": from_float(np.array([-2.109375, 1.0]), "bf16"),
    }
    found = bounds_of(g.program(), inputs)["S"]
    assert found.low[0] <= -1.0
    assert found.high[0] >= 1.0
    assert found.high[1] - found.low[1] < 1e-5
