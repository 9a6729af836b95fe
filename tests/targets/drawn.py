"""Programs drawn at random: products, reductions, scans, shifts, choices, roundings in chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ir import (
    Graph,
    Program,
    Tile,
    absolute,
    argmax,
    cast,
    ceil,
    contract,
    cumulative,
    exp,
    floor,
    indices,
    log,
    maximum,
    minimum,
    near_identity,
    recur,
    reduce,
    rsqrt,
    scatter,
    sigmoid,
    tanh,
    top,
    trunc,
    where,
)
from ir.axes import Axis
from ir.errors import ProgramError

T = TypeVar("T")
EXTENTS = {
    "i": (3, 5, 8, 24, 33, 40, 64),
    "j": (16, 32, 48, 64),
    "k": (16, 32, 64),
    "b": (1, 2, 3),
}
FIRST = ("bik", "bjk", "ij", "bij", "jk", "i", "j", "bj")  # axes of inputs
FLOATS = ("bf16", "f16", "f32")


class Drawn:
    """A program as it grows: the values that there are, and what may be made of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = Graph(f"drawn_{seed}")
        self.extents = {name: self.one(EXTENTS[name]) for name in EXTENTS}
        self.axes: dict[str, Axis] = dict(zip(EXTENTS, self.g.axes(**self.extents), strict=True))
        self.count = 0
        self.values = [self.input(self.one(FIRST)) for _ in range(self.rng.integers(2, 5))]

    def one(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def input(self, axes: str, dtypes: tuple[str, ...] = FLOATS) -> Tile:
        self.count += 1
        dims = tuple(self.axes[name] for name in axes)
        return self.g.input(f"X{self.count}", dims, self.one(dtypes))

    def value(self) -> Tile:
        """Any, in f32."""
        return cast(self.one(tuple(self.values)), "f32")

    def axis(self, of: Tile, among: str = "ijkb") -> Axis:
        found = tuple(name for name in of.axes if name in among)
        if not found:
            raise ProgramError("no such axis")
        return self.axes[self.one(found)]

    # -- what a value is made of others by

    def product(self) -> Tile:
        some = tuple(v for v in self.values if "k" in v.axes)
        if not some:
            raise ProgramError("nothing to sum")
        x = self.one(some)
        rest = next((name for name in "ij" if name not in x.axes), "j")
        y = self.input(self.one((f"{rest}k", f"b{rest}k")), ("bf16", "f16"))
        dtype = self.one(FLOATS)
        return contract(cast(x, dtype), cast(y, dtype), over=self.axes["k"])

    def reduced(self) -> Tile:
        x = self.value()
        return reduce(self.one(("sum", "max", "min")), x, over=self.axis(x))

    def elementwise(self) -> Tile:
        x, y = self.value(), self.value()
        made: tuple[Callable[[], Tile], ...] = (
            lambda: x + y, lambda: x * y, lambda: sigmoid(x), lambda: exp(minimum(x, 2.0)),
            lambda: tanh(x), lambda: maximum(x, y), lambda: x / (absolute(y) + 1.0),
            lambda: where(x < y, x, y * 0.5), lambda: where(x > 0.5, x, -0.25 * x),
        )  # fmt: skip
        return self.one(made)()

    def masked(self) -> Tile:
        x, (i, j) = self.value(), (self.g.iota(self.axes[name]) for name in "ij")
        if not {"i", "j"} <= {*x.axes}:
            raise ProgramError("no matrix")
        return where(self.one((j <= i, j - i < 3, j % 3 != 1, i * 2 >= j)), x, 0.0)

    def moved(self) -> Tile:
        x = self.value()
        axis = self.axis(x, "ij")
        return x.at({axis: axis + int(self.rng.integers(-3, 4))}, fill=0)

    def gathered(self) -> Tile:
        x = self.value()
        axis = self.axis(x, "ij")
        self.count += 1
        extent = self.extents[axis.name]
        places = self.g.input(f"P{self.count}", (axis,), "i32", values=indices(extent))
        return x.at({axis: places})

    def scanned(self) -> Tile:
        x = self.value()
        axis = self.axis(x)
        return cumulative("sum", x, axis) * (1 / self.extents[axis.name])

    def quantised(self) -> Tile:
        scale = self.one((3.0, 10.0, 25.0))
        code = maximum(minimum(floor(self.value() * scale + 0.5), 127.0), -127.0)
        return cast(cast(code, "i8"), "f32") * (1 / scale)

    def stepped(self) -> Tile:
        return self.one((floor, ceil, trunc))(self.value() * self.one((1.0, 4.0)))

    def normal(self) -> Tile:
        x = self.value()
        axis = self.axis(x)
        mean = reduce("sum", x * x, over=axis) * (1 / self.extents[axis.name])
        return x * rsqrt(mean + 1e-3)

    def shares(self) -> Tile:
        x = self.value()
        axis = self.axis(x)
        e = exp(x - reduce("max", x, over=axis))
        return e / reduce("sum", e, over=axis)

    def bits(self) -> Tile:
        code = self.input(self.one(("jk", "ik")), ("u8",))
        part = (code >> int(self.rng.integers(6))) & self.one((1, 3, 7, 15))
        return cast(part, "f32") - self.one((0.0, 1.0, 4.0))

    def narrowed(self) -> Tile:
        return cast(self.one(tuple(self.values)), self.one(("bf16", "f16")))

    def window(self) -> Tile:
        """A sum or an extreme over neighbours of a tensor with edges, or beyond them."""
        self.count += 1
        name = self.one(("i", "j"))
        (taps,) = self.g.axes(**{f"r{self.count}": self.one((2, 3, 5))})
        inside = bool(self.rng.integers(2))
        extent = self.extents[name] + (taps.extent - 1 if inside else 0)
        tensor = self.g.tensor(
            f"X{self.count}",
            (extent, self.extents["k"]),
            self.one(FLOATS),
            fill=None if inside else 0,
        )
        read = tensor[self.axes[name] + taps - (0 if inside else 1), self.axes["k"]]
        return reduce(self.one(("sum", "max")), cast(read, "f32"), over=taps)

    def flat(self) -> Tile:
        """Two axes that lie end to end in one dimension."""
        self.count += 1
        first, last = self.one((("i", "k"), ("j", "k"), ("b", "j")))
        extents = self.extents[first], self.extents[last]
        tensor = self.g.tensor(f"X{self.count}", (extents[0] * extents[1],), self.one(FLOATS))
        return tensor[self.axes[first] * extents[1] + self.axes[last]]

    def steps(self) -> Tile:
        """A state that goes along an axis: what it was before, or comes to."""
        x = self.value()
        time = self.axis(x, "ij")
        rest = tuple(self.axes[name] for name in x.axes if name != time.name)
        state = self.g.state(time, rest)
        made: tuple[Callable[[], Tile], ...] = (
            lambda: 0.5 * state + x, lambda: tanh(0.5 * state + x), lambda: maximum(0.9 * state, x),
            lambda: where(x > 0.0, state + 0.1 * x, 0.5 * state),
        )  # fmt: skip
        new = self.one(made)()
        last = recur(state, new)
        return self.one((new, last))

    def sent(self) -> Tile:
        x = self.value()
        axis = self.axis(x, "ij")
        self.count += 1
        into = self.axes[self.one(("i", "j"))]
        if into.name in x.axes and into.name != axis.name:
            raise ProgramError("it has that axis")
        dims = (axis,)
        places = self.g.input(f"P{self.count}", dims, "i32", values=indices(into.extent))
        if into.name == axis.name:
            raise ProgramError("the same axis")
        return scatter("sum", x, {into: places})

    def largest(self) -> Tile:
        x = self.value()
        axis = self.axis(x)
        self.count += 1
        (rank,) = self.g.axes(**{f"t{self.count}": min(2, axis.extent)})
        values, places = top(x, axis, rank)
        chosen = self.one((values, cast(places, "f32")))
        return reduce(self.one(("sum", "max")), chosen, over=rank)

    def whole_product(self) -> Tile:
        a, b = (self.input(axes, ("i8",)) for axes in ("ik", "jk"))
        return cast(contract(a, b, over=self.axes["k"]), "f32") * 2.0**-12

    def place(self) -> None:
        x = self.value()
        self.count += 1
        self.g.output(f"A{self.count}", argmax(x, self.axis(x)), "i32")

    # -- rarer ones

    def weighed(self) -> Tile:
        """What a state was before each step, weighed and summed over the steps."""
        x = self.value()
        time = self.axis(x, "ij")
        rest = tuple(self.axes[name] for name in x.axes if name != time.name)
        state = self.g.state(time, rest, self.one((0.0, 0.5)))
        made = recur(state, tanh(0.5 * state + x)), reduce("sum", x * state, over=time)
        other = reduce("sum", sigmoid(self.input(time.name)) * state, over=time)
        return self.one((*made, other, reduce("max", state, over=time)))

    def added_up(self) -> Tile:
        """A state that steps only add to, or compare with: of one value, or of products of two."""
        x = self.value()
        time = self.axis(x, "ijk")
        if self.rng.random() < 0.5:
            other = next((name for name in "ij" if name not in x.axes), "")
            if not other:
                raise ProgramError("nothing beside")
            x = x * self.input(other + time.name, ("bf16", "f32"))
        state = self.g.state(time, tuple(self.axes[n] for n in x.axes if n != time.name), 0.25)
        new = self.one((state + x, x + state, state - x, maximum(state, x), minimum(x, state)))
        return recur(state, new)

    def two_states(self) -> Tile:
        """Two states that are made of each other, one of them over fewer axes."""
        x = self.value()
        time = self.axis(x, "ij")
        rest = tuple(self.axes[name] for name in x.axes if name != time.name)
        if not rest:
            raise ProgramError("nothing beside")
        over, less = rest[-1], rest[:-1]
        wide, narrow = self.g.state(time, rest), self.g.state(time, less, 1.0)
        new = 0.5 * wide + x * narrow
        size = reduce("sum", new * new, over=over) * (1 / self.extents[over.name])
        last = recur(wide, new * rsqrt(size + 0.5)), recur(narrow, 0.9 * narrow + 0.1 * size)
        return self.one((*last, new, wide * narrow))

    def chosen_states(self) -> Tile:
        """A whole number that goes along, says what is read, and is found by what is read."""
        x = self.value()
        time = self.axis(x, "ij")
        over = self.axis(x, "ijk".replace(time.name, ""))
        rest = tuple(self.axes[n] for n in x.axes if n not in (time.name, over.name))
        place = self.g.state(time, rest, 0, "i32")
        best = argmax(x - 0.1 * absolute(self.g.iota(over) - place), over)
        last = recur(place, best)
        return cast(self.one((last, place, best)), "f32") * (1 / self.extents[over.name])

    def attended(self) -> Tile:
        """Shares of products, by which others are summed; or their statistics."""
        k, i, j = (self.axes[name] for name in "kij")
        self.count += 1
        e = self.g.axis(f"e{self.count}", self.one((16, 32)))
        batch = self.one(("", "b"))
        q, keys = self.input(f"{batch}ik", ("bf16", "f16")), self.input(f"{batch}jk", ("bf16",))
        s = contract(cast(q, "bf16"), keys, over=k) * 0.25
        if self.one((True, False)):
            s = s + self.value_over("ijb")
        if self.one((True, False)):
            s = where(self.g.iota(j) <= self.g.iota(i) * 2, s, -1e30)
        m = reduce("max", s, over=j)
        p = exp(s - m)
        total = reduce("sum", p, over=j)
        dims = (*(self.axes[n] for n in batch), j, e)
        self.count += 1
        v = self.g.input(f"X{self.count}", dims, "bf16")
        o = reduce("sum", contract(cast(p, "bf16"), v, over=j) / total, over=e)
        return self.one((o, o, m + log(total), p / total))

    def value_over(self, axes: str) -> Tile:
        some = tuple(v for v in self.values if {*v.axes} <= {*axes})
        if not some:
            raise ProgramError("no such value")
        return cast(self.one(some), "f32")

    def wide(self) -> Tile:
        """Numbers of eight bytes."""
        x = self.value()
        dtype = self.one(("i64", "f64"))
        part = self.input(self.one(tuple(x.axes) or ("i",)), (dtype,))
        if dtype == "i64":
            return x + cast(part & 3, "f32")
        return cast(cast(x, "f64") * part, "f32")

    def both_reduced(self) -> Tile:
        x = self.value()
        if len(x.axes) < 2:
            raise ProgramError("one axis")
        over = tuple(self.axes[name] for name in x.axes[-2:] if name in self.axes)
        return reduce(self.one(("sum", "max")), x, over=over)

    def running(self) -> Tile:
        x = self.value()
        axis = self.axis(x)
        kind, backward = self.one(("sum", "max", "min")), self.one((True, False))
        scale = 1 / self.extents[axis.name] if kind == "sum" else 1.0
        return cumulative(kind, x, axis, backward=backward) * scale

    def looked_up(self) -> Tile:
        """Rows of a tensor at places that are computed."""
        x = self.value()
        axis = self.axis(x)
        self.count += 1
        place = argmax(x, axis)
        table = self.g.tensor(f"X{self.count}", (axis.extent, self.extents["k"]), "bf16")
        if "k" in place.axes:
            raise ProgramError("it has that axis")
        return cast(table[place, self.axes["k"]], "f32")

    def powers(self) -> Tile:
        """A matrix multiplied by itself, some times."""
        k = self.axes["k"]
        self.count += 1
        m, n = (self.g.axis(f"{s}{self.count}", k.extent) for s in "mn")
        w = self.g.input(f"X{self.count}", (k, n), "bf16", values=near_identity(0.02))
        a = cast(w, "f32")
        for _ in range(self.one((1, 2))):
            a = contract(cast(a, "bf16").at({n: m}), w.at({k: m}), over=m)
        return reduce("sum", a, over=n)

    def spelt(self) -> Tile:
        """A product of matrices as a sum of products, of narrow or wide factors, beside others."""
        k, x = self.axes["k"], self.one(tuple(v for v in self.values if "k" in v.axes) or (None,))
        if x is None:
            raise ProgramError("nothing to sum")
        rest = next((name for name in "ij" if name not in x.axes), "j")
        y = self.input(rest + "k", ("bf16", "bf16", "f32"))
        x = cast(cast(x, "bf16"), "f32") if self.rng.random() < 0.7 else cast(x, "f32")
        made = x * y
        if self.rng.random() < 0.4:
            made = made * self.one((self.input("k"), self.input(rest), self.value()))
        if self.rng.random() < 0.3:
            made = made - self.one((made * 0.5, -x * self.input(rest + "k"), self.value()))
        return reduce("sum", made, over=k)

    def hot(self) -> Tile:
        """A sum that a comparison of coordinates, or of one with a place, leaves few terms of."""
        x, (i, j) = self.value(), (self.axes[name] for name in "ij")
        summed, other = (i, j) if "i" in x.axes else (j, i)
        if summed.name not in x.axes:
            raise ProgramError("no rows")
        self.count += 1
        here, there = self.g.iota(summed), self.g.iota(other)
        extent = self.extents[self.one((summed.name, other.name))] + 1
        place = self.g.input(f"P{self.count}", (self.one((other, summed)),), "i32",
                             values=indices(extent))  # fmt: skip
        near = place + int(self.rng.integers(-2, 2))
        off = int(self.rng.integers(-2, 3))
        met = self.one((
            near == here, near == here, near == there, here == near, here <= there + off,
            there + off < here, here == there + off,
        ))  # fmt: skip
        if self.rng.random() < 0.3:
            met = met & (x > 0.1)
        how = self.rng.random()
        if how < 0.4:
            return reduce("sum", where(met, x, 0.0), over=summed)
        if how < 0.7:
            return reduce("sum", cast(met, "f32") * x, over=summed)
        hot = cast(where(met, 1.0, 0.0), "bf16")
        return contract(hot, cast(x, "bf16"), over=summed)


WAYS = (
    Drawn.product, Drawn.product, Drawn.reduced, Drawn.elementwise, Drawn.elementwise,
    Drawn.masked, Drawn.moved, Drawn.gathered, Drawn.scanned, Drawn.quantised, Drawn.stepped,
    Drawn.normal, Drawn.shares, Drawn.bits, Drawn.narrowed, Drawn.place, Drawn.window, Drawn.flat,
    Drawn.steps, Drawn.sent, Drawn.largest, Drawn.whole_product,
)  # fmt: skip


RARER = (
    *(way for way in WAYS if way is not Drawn.place),
    Drawn.weighed, Drawn.weighed, Drawn.two_states, Drawn.chosen_states, Drawn.attended,
    Drawn.attended, Drawn.spelt, Drawn.spelt, Drawn.hot, Drawn.wide, Drawn.both_reduced,
    Drawn.running, Drawn.looked_up, Drawn.powers, Drawn.added_up,
)  # fmt: skip


def drawn(seed: int, ways: Sequence[Callable[[Drawn], Tile | None]] = WAYS) -> Program | None:
    """The program of a seed; None where nothing came of it."""
    own = Drawn(seed)
    for _ in range(own.rng.integers(3, 9)):
        try:
            made = own.one(ways)(own)
        except ProgramError:
            continue
        if made is not None:
            own.values.append(made)
    wanted = int(own.rng.integers(1, 4))
    for number, value in enumerate(own.values[: -1 - wanted : -1]):
        try:
            own.g.output(f"Y{number}", value, own.one(("f32", "f32", "bf16")))
        except ProgramError:  # an input as it is, a value twice
            continue
    try:
        return own.g.program()
    except ProgramError:
        return None
