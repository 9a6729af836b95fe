"""Programs of several phases: scans, folds, tops, scatters, states, tiles that are read again."""

from __future__ import annotations

from ir import (
    Graph,
    argmax,
    argmin,
    cast,
    contract,
    cumulative,
    exp,
    operator,
    recur,
    recurrence,
    reduce,
    scan,
    scatter,
    top,
    where,
)
from ir.values import indices


@operator
def sums(g: Graph, m: int, n: int, dtype: str = "f32", backward: bool = False) -> None:
    """Sums along both axes, one after the other, in the inputs' own type."""
    i, j = g.axes(i=m, j=n)
    x = g.input("X", (i, j), dtype)
    along = cumulative("sum", x, j, backward=backward)
    g.output("Y", along, dtype)
    g.output("Z", cumulative("max", along * 2, i), dtype, (i, j))


@operator
def wholes(g: Graph, m: int, n: int) -> None:
    """Bytes, truth values and doubles."""
    i, j = g.axes(i=m, j=n)
    a, b = g.input("A", (i, j), "u8"), g.input("B", (i, j), "bool")
    d = g.input("D", (i, j), "f64")
    g.output("S", cumulative("sum", a, j))
    g.output("P", cumulative("and", b | (a < 200), j, backward=True))
    g.output("Q", cumulative("min", d, j))
    g.output("R", argmin(cast(a, "i32"), j))


@operator
def decayed(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """h = a h + b along the rows, and the largest element of the result with its place."""
    i, j = g.axes(i=m, j=n)
    a, b = g.input("A", (i, j), dtype), g.input("B", (i, j), dtype)
    h = recurrence(a * 0.5, b, j, backward=True)
    g.output("H", h, dtype)
    g.output("M", argmax(cast(h, "f32") * 2.0, i))


@operator
def moments(g: Graph, m: int, n: int) -> None:
    """Count, mean and sum of squared differences of each prefix, by pairs."""
    i, j = g.axes(i=m, j=n)
    x = g.input("X", (i, j), "f32")

    def both(a, b):  # type: ignore[no-untyped-def]
        count, apart = a[0] + b[0], b[1] - a[1]
        share = b[0] / count
        return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share

    one = g.constant(1.0, "f32") + 0.0 * x
    count, mean, squares = scan(both, (one, x, 0.0 * x), j)
    g.output("M", mean)
    g.output("V", squares / count)


@operator
def largest(g: Graph, m: int, n: int, k: int, dtype: str = "f32", least: bool = False) -> None:
    """The first elements of each row in order, what they stand beside, and a softmax of them."""
    i, j, r = g.axes(i=m, j=n, r=k)
    x = g.input("X", (i, j), dtype)
    values, places = top(x, j, r, least=least)
    g.output("V", values, dtype)
    g.output("P", places)
    weights = exp(cast(values, "f32") * 0.1)
    g.output("W", weights / reduce("sum", weights, r))


@operator
def sent(g: Graph, m: int, n: int, kind: str = "sum", dtype: str = "f32") -> None:
    """Elements sent to columns that an index tells."""
    i, j, to = g.axes(i=m, j=n, to=n + 2)
    x = g.input("X", (i, j), dtype)
    at = g.input("I", (i, j), "i32", values=indices(n))
    g.output("Y", scatter(kind, x if kind != "or" else x < 0, {i: i, to: at}))


@operator
def counted(g: Graph, n: int, bins: int) -> None:
    """A histogram, and where each bin begins."""
    i, b = g.axes(i=n, b=bins)
    at = g.input("I", (i,), "i32", values=indices(bins))
    counts = scatter("sum", g.iota(i) * 0 + 1, {b: at})
    g.output("C", counts)
    g.output("E", cumulative("sum", counts, b))


@operator
def outer_states(g: Graph, t: int, d: int, e: int) -> None:
    """A matrix that each step decays and adds a product to, read by queries."""
    tt, dd, ee = g.axes(t=t, d=d, e=e)
    key, value = g.input("K", (tt, dd), "f32"), g.input("V", (tt, ee), "f32")
    state = g.state(tt, (dd, ee))
    after = state * 0.9 + key * value
    g.output("O", contract(g.input("Q", (tt, dd), "f32"), after, dd))
    g.output("S", recur(state, after))


@operator
def shifted(g: Graph, m: int, n: int, k: int) -> None:
    """A product that is read one row further up, and multiplied again."""
    i, j, inner, o = g.axes(i=m, j=n, k=k, o=5)
    c = contract(g.input("A", (i, inner), "f32"), g.input("B", (inner, j), "f32"), inner)
    both = where(c < 0.0, c.at(i=i - 1, fill=0.0), c)
    g.output("Y", contract(both, g.input("W", (j, o), "f32"), j))


@operator
def mixture(g: Graph, m: int, n: int, k: int) -> None:
    """Softmax of a product, its sums, the largest of it, and all of it sent elsewhere."""
    i, j, inner, to = g.axes(i=m, j=n, k=k, to=n)
    x = contract(g.input("A", (i, inner), "bf16"), g.input("B", (inner, j), "bf16"), inner)
    e = exp(x - reduce("max", x, j))
    p = e / reduce("sum", e, j)
    g.output("C", cumulative("sum", p, j), "bf16")
    at = g.input("I", (j,), "i32", values=indices(n))
    g.output("S", scatter("sum", p, {i: i, to: at}))
    g.output("M", argmax(p * 2.0, j))
    g.output("D", cumulative("sum", p, i) - p)


@operator
def looked_up(g: Graph, m: int, n: int, k: int) -> None:
    """Rows of a product and elements of tables at places that tiles tell, some of them outside."""
    i, j, inner = g.axes(i=m, j=n, k=k)
    c = contract(g.input("A", (i, inner), "f32"), g.input("B", (inner, j), "f32"), inner)
    at = g.input("I", (i,), "i32", values=indices(m + 2)) - 1
    g.output("Y", c.at(i=at, fill=0.5) * 2.0)
    g.output("T", g.tensor("N", (m, n + 3), "bf16", fill=2.0)[at, j + 2])
    g.output("F", g.tensor("M", (n, m), "bool", fill=1)[j, at])


@operator
def segments(g: Graph, m: int, d: int, rows: int, kind: str = "sum", dtype: str = "f32") -> None:
    """Many rows combined in a few, which a place tells: some of them are outside."""
    i, j, to = g.axes(i=m, j=d, to=rows)
    x = g.input("X", (i, j), dtype)
    at = g.input("I", (i,), "i32", values=indices(rows + 1))
    g.output("Y", scatter(kind, x if kind != "or" else x < 0, {to: at, j: j}))


@operator
def columns(g: Graph, m: int, n: int, dtype: str = "f32", backward: bool = False) -> None:
    """h = exp(a) h / 10 + b down each column."""
    i, j = g.axes(i=m, j=n)
    a, b = g.input("A", (i, j), dtype), g.input("B", (i, j), dtype)
    h = recurrence(exp(a) * 0.1, b, i, backward=backward)
    g.output("H", h, dtype, (i, j))


@operator
def rows(g: Graph, m: int, n: int, backward: bool = False) -> None:
    """Sums of each row so far, and the place of its largest element."""
    i, j = g.axes(i=m, j=n)
    x = g.input("X", (i, j), "f32")
    g.output("Y", cumulative("sum", x, j, backward=backward))
    g.output("M", argmax(x, j))


@operator
def ranked(g: Graph, m: int, n: int, k: int) -> None:
    """The largest of each row, and where they stand."""
    i, j, r = g.axes(i=m, j=n, r=k)
    values, places = top(g.input("X", (i, j), "f32"), j, r)
    g.output("V", values)
    g.output("P", places)
