"""Programs of tables, sequences, lattices and small matrices, on numbers of many kinds.

`tilewright tune experiments/corpus/ledgers.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

from ir import (
    Graph,
    absolute,
    argmax,
    ascending,
    cast,
    contract,
    cumulative,
    exp,
    floor,
    indices,
    log,
    lookup,
    maximum,
    minimum,
    normal,
    offsets,
    operator,
    positive,
    recur,
    reduce,
    rsqrt,
    scan,
    scatter,
    uniform,
    where,
)


@operator
def turned_chain(g: Graph, b: int, n: int) -> None:
    """Joints of a chain: products of quaternions along it, and where each bone ends."""
    B, N = g.axes(b=b, n=n)
    raw = [g.input("q" + c, (B, N), "f32") for c in "wxyz"]
    inv = rsqrt(raw[0] ** 2 + raw[1] ** 2 + raw[2] ** 2 + raw[3] ** 2 + 1e-9)
    q = tuple(c * inv for c in raw)
    bone = g.input("bone", (N,), "f32", values=uniform(0.5, 1))

    def times(p, r):
        (a, b, c, d), (e, f, h, i) = p, r
        return (
            a * e - b * f - c * h - d * i,
            a * f + b * e + c * i - d * h,
            a * h - b * i + c * e + d * f,
            a * i + b * h - c * f + d * e,
        )

    w, x, y, z = scan(times, q, N)
    ahead = (1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y))
    for name, part in zip("XYZ", ahead, strict=True):
        g.output(name, cumulative("sum", part * bone, N), "f32", (B, N))


@operator
def inverses(g: Graph, n: int) -> None:
    """Inverses and determinants of 3 x 3 matrices, by cofactors, in f64."""
    N, R, C = g.axes(n=n, r=3, c=3)
    a = g.tensor("A", (n, 3, 3), "f64", values=normal(0.2))
    r, c = g.coordinate(R), g.coordinate(C)

    def m(i, j):
        return a[N, i, j] + where(i == j, 1.0, 0.0)

    c1, c2, r1, r2 = (c + 1) % 3, (c + 2) % 3, (r + 1) % 3, (r + 2) % 3
    cof = m(c1, r1) * m(c2, r2) - m(c1, r2) * m(c2, r1)
    det = reduce("sum", m(g.iota(R), 0 * g.iota(R)) * cof.at(r=0, c=R), over=R)
    g.output("I", cof / det, "f64", (N, R, C))
    g.output("det", det, "f64", (N,))


@operator
def pivoted(g: Graph, b: int, n: int) -> None:
    """Small systems with two right sides, solved with rows exchanged for those that lead."""
    T, B, I, J = g.axes(t=n, b=b, i=n, j=n + 2)  # noqa: E741
    a = g.state(T, (B, I, J), g.input("A", (B, I, J), "f32"))
    column = a.at(j=T)
    p = argmax(where(g.iota(I) >= T, absolute(column), -1.0), I)
    swapped = where(g.iota(I) == T, a.at(i=p), where(g.iota(I) == p, a.at(i=T), a))
    lead = a.at(i=p)
    factor = swapped.at(j=T) / lead.at(j=T)
    new = where(g.iota(I) == T, lead / lead.at(j=T), swapped - factor * lead)
    g.output("X", recur(a, new).at(j=g.axis("s", 2) + n), "f32")


@operator
def red_black(g: Graph, b: int, h: int, w: int, steps: int, omega: float = 1.5) -> None:
    """Poisson's equation in a plane, over-relaxed, points of one colour after the others."""
    T, B, Y, X = g.axes(t=steps, b=b, y=h, x=w)
    f = g.input("F", (B, Y, X), "f32")
    u = g.state(T, (B, Y, X))

    def swept(v, parity):
        around = v.at(y=Y - 1, fill=0) + v.at(y=Y + 1, fill=0) + v.at(x=X - 1, fill=0)
        goal = 0.25 * (around + v.at(x=X + 1, fill=0) - f)
        return where(g.coordinate(Y + X) % 2 == parity, v + omega * (goal - v), v)

    g.output("U", recur(u, swept(swept(u, 0), 1)), "f32", (B, Y, X))


@operator
def csr_product(g: Graph, n: int, total: int, longest: int, m: int) -> None:
    """A sparse matrix by offsets of rows times a vector, in f64 from f32 values."""
    N, J = g.axes(n=n, j=longest)
    start = g.input("start", (g.axis("s", n + 1),), "i32", values=offsets(total))
    column = g.tensor("column", (total,), "i32", values=indices(m))
    value, x = g.tensor("value", (total,), "f32"), g.tensor("x", (m,), "f64")
    first, end = start.at(s=N), start.at(s=N + 1)
    at = first + g.iota(J)
    safe = minimum(at, total - 1)
    term = cast(value[safe], "f64") * x[column[safe]]
    g.output("y", reduce("sum", where(at < end, term, 0.0), over=J), "f64", (N,))


@operator
def modular_transform(g: Graph, b: int, bits: int) -> None:
    """A number-theoretic transform of words modulo 12289, butterflies in steps."""
    n, p = 1 << bits, 12289
    T, B, I = g.axes(t=bits, b=b, i=n)  # noqa: E741
    x = g.state(T, (B, I), g.input("X", (B, I), "i64", values=uniform(0, p - 1)))
    i, t = g.coordinate(I), g.coordinate(T)
    half = cast(g.constant(n // 2, "i32") >> t, "i32")
    pair = i ^ half
    own, other = x, x.at(i=pair)
    upper = (i & half) != 0
    w = g.input("root", (I,), "i64", values=uniform(0, p - 1)).at(i=((i & (half - 1)) << t))
    new = where(upper, ((other - own) * w) % p, (own + other) % p)
    g.output("Y", recur(x, new), "i64", (B, I))


@operator
def sorted_rows(g: Graph, b: int, bits: int) -> None:
    """Rows in order by a network of comparators: two tables say who meets whom at each step."""
    n = 1 << bits
    steps = [(k, j) for k in range(1, bits + 1) for j in range(k - 1, -1, -1)]
    T, B, I = g.axes(t=len(steps), b=b, i=n)  # noqa: E741
    x = g.state(T, (B, I), g.input("X", (B, I), "f32"))
    i = g.coordinate(I)
    k = lookup([float(k) for k, _ in steps], g.iota(T))
    j = lookup([float(j) for _, j in steps], g.iota(T))
    k, j = cast(k, "i32"), cast(j, "i32")
    other = x.at(i=i ^ (g.constant(1, "i32") << j))
    up = ((i >> k) & 1) == 0
    low = ((i >> j) & 1) == 0
    g.output("Y", recur(x, where(up == low, minimum(x, other), maximum(x, other))), "f32", (B, I))


@operator
def patches_alike(g: Graph, b: int, h: int, w: int, reach: int = 5, patch: int = 3) -> None:
    """Pixels averaged over a neighbourhood by how alike the patches around them are."""
    B, Y, X, R, S, U, V = g.axes(b=b, y=h, x=w, r=reach, s=reach, u=patch, v=patch)
    x = g.tensor("X", (b, h, w), "u8", fill=0)

    def at(dy, dx):
        return cast(x[B, dy, dx], "f32")

    k, q = reach // 2, patch // 2
    own = at(Y + U - q, X + V - q)
    other = at(Y + R - k + U - q, X + S - k + V - q)
    away = reduce("sum", (own - other) * (own - other), over=(U, V))
    weight = exp(away * (-1 / 2000.0))
    near = at(Y + R - k, X + S - k)
    mean = reduce("sum", weight * near, over=(R, S)) / reduce("sum", weight, over=(R, S))
    g.output("Y", round(mean), "u8", (B, Y, X))


@operator
def motion(g: Graph, b: int, h: int, w: int, r: int = 7) -> None:
    """How windows of two images move: least squares of gradients, two by two."""
    B, Y, X, R, S = g.axes(b=b, y=h, x=w, r=r, s=r)
    one, two = g.tensor("I", (b, h, w), "f32", fill=0), g.tensor("J", (b, h, w), "f32", fill=0)

    def made(y, x):
        dx = 0.5 * (one[B, y, x + 1] - one[B, y, x - 1])
        dy = 0.5 * (one[B, y + 1, x] - one[B, y - 1, x])
        return dx, dy, two[B, y, x] - one[B, y, x]

    dx, dy, dt = made(Y + R - r // 2, X + S - r // 2)

    def total(v):
        return reduce("sum", v, over=(R, S))

    a, c, d = total(dx * dx) + 1e-2, total(dx * dy), total(dy * dy) + 1e-2
    e, f = -total(dx * dt), -total(dy * dt)
    det = a * d - c * c
    g.output("U", (d * e - c * f) / det, "f32", (B, Y, X))
    g.output("V", (a * f - c * e) / det, "f32", (B, Y, X))


@operator
def pyramid(g: Graph, b: int, h: int, w: int) -> None:
    """Two halvings of images through a filter of five taps, and what the first leaves out."""
    taps = [1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16]
    B, Y, X, P, Q, R, S = g.axes(b=b, y=h, x=w, p=h // 2, q=w // 2, r=5, s=5)
    x = g.tensor("X", (b, h, w), "f16", fill=0)
    weight = lookup(taps, g.iota(R)) * lookup(taps, g.iota(S))
    one = reduce("sum", weight * cast(x[B, 2 * P + R - 2, 2 * Q + S - 2], "f32"), over=(R, S))
    C, D, E, F = g.axes(c=h // 4, d=w // 4, e=5, f=5)
    weight = lookup(taps, g.iota(E)) * lookup(taps, g.iota(F))
    near = one.at(p=2 * C + E - 2, q=2 * D + F - 2, fill=0)
    g.output("one", one, "f16", (B, P, Q))
    g.output("two", reduce("sum", weight * near, over=(E, F)), "f16", (B, C, D))
    up = one.at(p=g.coordinate(Y) // 2, q=g.coordinate(X) // 2)
    g.output("rest", cast(x[B, Y, X], "f32") - up, "f16", (B, Y, X))


@operator
def jump_flood(g: Graph, h: int, w: int, steps: int) -> None:
    """Each pixel's nearest seed: those of neighbours at halving distances are compared."""
    T, Y, X = g.axes(t=steps, y=h, x=w)
    seed = g.input("seed", (Y, X), "u8", values=uniform(0, 40))
    own = g.coordinate(Y * w + X)
    far = g.constant(-1, "i32")
    best = g.state(T, (Y, X), where(seed == 0, own, far))
    step = g.constant(1 << (steps - 1), "i32") >> g.coordinate(T)
    y, x = g.coordinate(Y), g.coordinate(X)

    def away(p):
        dy, dx = y - p // w, x - p % w
        return where(p < 0, 1 << 30, dy * dy + dx * dx)

    new = best
    for dy, dx in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        p = best.at(y=minimum(maximum(y + dy * step, 0), h - 1),
                    x=minimum(maximum(x + dx * step, 0), w - 1))  # fmt: skip
        new = where(away(p) < away(new), p, new)
    g.output("nearest", recur(best, new), "i32", (Y, X))


@operator
def grouped_totals(g: Graph, n: int, keys: int) -> None:
    """Rows of a table by a key: how many, sums in i64, least, most and mean of a measure."""
    N, K = g.axes(n=n, k=keys)
    key = g.input("key", (N,), "i32", values=indices(keys, 1))
    price, size = g.input("price", (N,), "f64"), g.input("size", (N,), "i16")
    count = scatter("sum", g.constant(1, "i64") + 0 * cast(key, "i64"), {K: key})
    total = scatter("sum", price, {K: key})
    g.output("count", count, "i64", (K,))
    g.output("sizes", scatter("sum", cast(size, "i64"), {K: key}), "i64", (K,))
    g.output("least", scatter("min", price, {K: key}), "f64", (K,))
    g.output("mean", total / cast(maximum(count, 1), "f64"), "f64", (K,))


@operator
def sought(g: Graph, n: int, m: int, bits: int) -> None:
    """Keys sought in a sorted list by halving, and the payload of those that are there."""
    T, N = g.axes(t=bits, n=n)
    have = g.tensor("have", (m,), "i32", values=ascending(0, 4 * m))
    pay, key = g.tensor("pay", (m,), "f32"), g.input("key", (N,), "i32", values=uniform(0, 4 * m))
    low = g.state(T, (N,), g.constant(0, "i32"))
    size = g.constant(1 << (bits - 1), "i32") >> g.coordinate(T)
    next_ = low + size
    less = (next_ <= m) & (have[minimum(next_, m) - 1] < key)
    at = recur(low, where(less, next_, low))
    safe = minimum(at, m - 1)
    g.output("place", at, "i32", (N,))
    g.output("paid", where((at < m) & (have[safe] == key), pay[safe], 0.0), "f32", (N,))


@operator
def distinct_so_far(g: Graph, b: int, n: int, keys: int) -> None:
    """How many different keys streams have had up to each element."""
    B, N, K = g.axes(b=b, n=n, k=keys)
    x = g.input("X", (B, N), "u16", values=indices(keys))
    key = cast(x, "i32")
    first = scatter("min", g.coordinate(N) + 0 * key, {B: g.iota(B), K: key})
    new = where(first.at(k=key) == N, g.constant(1, "i32"), 0)
    g.output("distinct", cumulative("sum", new, N), "i32", (B, N))


@operator
def affine_gaps(g: Graph, b: int, n: int, m: int) -> None:
    """Best local alignments of pairs where a gap's opening costs more than its going on."""
    T, B, J = g.axes(t=n, b=b, j=m)
    x = g.input("X", (B, T), "u8", values=indices(4))
    y = g.input("Y", (B, J), "u8", values=indices(4))
    zero = g.constant(0, "i32")
    h, e = g.state(T, (B, J), zero), g.state(T, (B, J), zero - 1000)
    best = g.state(T, (B,), zero)
    down = maximum(h - 5, e - 1)
    match = h.at(j=J - 1, fill=0) + where(x == y, g.constant(3, "i32"), -2)
    own = maximum(maximum(match, down), 0)
    j = g.coordinate(J)
    along = cumulative("max", own - 4 + j, J).at(j=J - 1, fill=-1000) - j
    new = maximum(own, along)
    recur(h, new)
    recur(e, down)
    g.output("score", recur(best, maximum(best, reduce("max", new, over=J))), "i32", (B,))


@operator
def warping(g: Graph, b: int, n: int, band: int) -> None:
    """Distances of series that may run faster and slower, within a band."""
    T, B, J = g.axes(t=n, b=b, j=n)
    x, y = g.input("X", (B, T), "f32"), g.input("Y", (B, J), "f32")
    far = 1e9
    d = g.state(T, (B, J), g.constant(far, "f32"))
    cost = absolute(x - y)
    corner = where((g.iota(T) == 0) & (g.iota(J) == 0), 0.0, far)
    before = minimum(minimum(d, d.at(j=J - 1, fill=far)), corner)
    inside = absolute(g.coordinate(J - T)) <= band
    total = cumulative("sum", cost, J)
    own = before + cost - total
    new = where(inside, cumulative("min", where(inside, own, far), J) + total, far)
    g.output("D", recur(d, new).at(j=n - 1), "f32", (B,))


@operator
def cipher(g: Graph, n: int, rounds: int = 10) -> None:
    """Blocks of a stream cipher: sixteen words, added, exclusive-ored and turned in quarters."""
    T, N, W = g.axes(t=rounds, n=n, w=16)
    key = g.tensor("key", (12,), "u32")
    word = g.coordinate(W)
    salt = lookup([0x61707865, 0x3320646E, 0x79622D32, 0x6B206574], minimum(word, 3), "u32")
    begin = where(word < 4, salt, where(word == 12, cast(g.coordinate(N), "u32"),
                                        key[minimum(maximum(word - 4, 0), 11)]))  # fmt: skip
    s = [g.state(T, (N,), begin.at(w=k)) for k in range(16)]
    x = [cast(v, "i64") for v in s]
    mask = 0xFFFFFFFF

    def turned(v, k):
        return ((v << k) | (v >> (32 - k))) & mask

    def quarter(a, b, c, d):
        x[a] = (x[a] + x[b]) & mask
        x[d] = turned(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & mask
        x[b] = turned(x[b] ^ x[c], 12)
        x[a] = (x[a] + x[b]) & mask
        x[d] = turned(x[d] ^ x[a], 8)
        x[c] = (x[c] + x[d]) & mask
        x[b] = turned(x[b] ^ x[c], 7)

    for k in range(4):
        quarter(k, 4 + k, 8 + k, 12 + k)
    for k in range(4):
        quarter(k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    for k in range(16):
        last = cast(recur(s[k], cast(x[k], "u32")), "i64")
        g.output(f"y{k}", cast((last + cast(begin.at(w=k), "i64")) & mask, "u32"), "u32", (N,))


@operator
def garch(g: Graph, b: int, t: int) -> None:
    """Likelihoods of returns whose variance follows their squares and itself, in f64."""
    T, B = g.axes(t=t, b=b)
    x = cast(g.input("X", (T, B), "f32"), "f64")
    w, a, c = (g.input(n, (B,), "f64", values=uniform(lo, hi))
               for n, lo, hi in (("w", 0.05, 0.1), ("a", 0.05, 0.15), ("c", 0.7, 0.8)))  # fmt: skip
    v = g.state(T, (B,), w / (1 - a - c))
    total = g.state(T, (B,), 0 * w)
    recur(v, w + a * x * x + c * v)
    g.output("L", recur(total, total - 0.5 * (log(v) + x * x / v)), "f64", (B,))


@operator
def deposited(g: Graph, n: int, h: int, w: int) -> None:
    """Charges of particles on the four corners around them, and the field that moves them."""
    N, C, Y, X = g.axes(n=n, c=4, y=h, x=w)
    py, px = (g.input(s, (N,), "f32", values=uniform(0, e - 1.01)) for s, e in (("y", h), ("x", w)))
    q = g.input("q", (N,), "f32", values=positive())
    field = g.tensor("E", (h, w), "f32")
    fy, fx = floor(py), floor(px)
    dy, dx = g.coordinate(C) // 2, g.coordinate(C) % 2
    wy = where(dy == 0, 1 - (py - fy), py - fy)
    wx = where(dx == 0, 1 - (px - fx), px - fx)
    y, x = cast(fy, "i32") + dy, cast(fx, "i32") + dx
    g.output("rho", scatter("sum", q * wy * wx, {Y: y, X: x}), "f32", (Y, X))
    g.output("F", q * reduce("sum", wy * wx * field[y, x], over=C), "f32", (N,))


@operator
def reachable(g: Graph, n: int, steps: int) -> None:
    """Who reaches whom within doubling numbers of steps, as truth values."""
    T, I, J, K = g.axes(t=steps, i=n, j=n, k=n)  # noqa: E741
    a = g.input("A", (I, J), "u8", values=uniform(0, 30))
    r = g.state(T, (I, J), (a == 0) | (g.iota(I) == J))
    both = r.at(j=K) & r.at(i=K)
    g.output("R", recur(r, reduce("max", both, over=K)), "bool", (I, J))


@operator
def bit_columns(g: Graph, blocks: int, width: int = 13) -> None:
    """Differences of 13 bits, packed in words, to the running numbers of blocks of 128."""
    B, I = g.axes(b=blocks, i=128)  # noqa: E741
    words = 128 * width // 32
    x = g.tensor("X", (blocks, words + 1), "u32")
    base = g.input("base", (B,), "i64", values=uniform(0, 2**40))
    at = g.coordinate(I) * width
    low, high = cast(x[B, at // 32], "i64"), cast(x[B, at // 32 + 1], "i64")
    code = (((high << 32) | low) >> cast(at % 32, "i64")) & ((1 << width) - 1)
    step = (code >> 1) ^ -(code & 1)
    g.output("Y", base + cumulative("sum", step, I), "i64", (B, I))


@operator
def thin_product(g: Graph, k: int, n: int) -> None:
    """One row times a matrix of few columns and very many rows, with the sum of its squares."""
    M, K, N = g.axes(m=1, k=k, n=n)
    a = g.input("A", (M, K), "bf16")
    b = g.input("B", (K, N), "bf16")
    g.output("C", contract(a, b, over=K), "f32", (M, N))
    g.output("S", reduce("sum", cast(b, "f32") * cast(b, "f32"), over=(K, N)), "f32", ())


@operator
def field_words(g: Graph, b: int, n: int, roots: int) -> None:
    """Syndromes of words of bytes over a field of 256 elements, by logarithms in tables."""
    B, N, R = g.axes(b=b, n=n, r=roots)
    powers, v = [], 1
    for _ in range(255):
        powers.append(v)
        v = (v << 1) ^ (0x11D if v & 0x80 else 0)
    logs = [0] * 256
    for k, p in enumerate(powers):
        logs[p] = k
    x = cast(g.input("X", (B, N), "u8", values=uniform(0, 255)), "i32")
    e = (lookup(logs, x, "i32") + (g.coordinate(N) * (g.coordinate(R) + 1))) % 255
    term = where(x == 0, 0, lookup([*powers, 1], e, "i32"))
    bit = g.axis("bit", 8)
    one = (term >> g.iota(bit)) & 1
    odd = reduce("sum", one, over=N) & 1
    g.output("S", reduce("sum", odd << g.iota(bit), over=bit), "u8", (B, R))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "turned_chain": {"small": {"b": 3, "n": 17}, "full": {"b": 65521, "n": 256}},
    "inverses": {"small": {"n": 37}, "full": {"n": 16777213}},
    "pivoted": {"small": {"b": 4, "n": 6}, "full": {"b": 262147, "n": 16}},
    "red_black": {
        "small": {"b": 2, "h": 9, "w": 13, "steps": 3},
        "full": {"b": 64, "h": 511, "w": 509, "steps": 50},
    },
    "csr_product": {
        "small": {"n": 19, "total": 60, "longest": 12, "m": 23},
        "full": {"n": 4194301, "total": 67108864, "longest": 64, "m": 4194301},
    },
    "modular_transform": {"small": {"b": 3, "bits": 4}, "full": {"b": 65521, "bits": 10}},
    "sorted_rows": {"small": {"b": 3, "bits": 4}, "full": {"b": 65521, "bits": 10}},
    "patches_alike": {"small": {"b": 1, "h": 9, "w": 12}, "full": {"b": 4, "h": 2160, "w": 3840}},
    "motion": {"small": {"b": 2, "h": 9, "w": 14}, "full": {"b": 16, "h": 1080, "w": 1920}},
    "pyramid": {"small": {"b": 2, "h": 12, "w": 20}, "full": {"b": 32, "h": 2160, "w": 3840}},
    "jump_flood": {
        "small": {"h": 11, "w": 14, "steps": 3},
        "full": {"h": 4096, "w": 4096, "steps": 11},
    },
    "grouped_totals": {"small": {"n": 97, "keys": 7}, "full": {"n": 134217689, "keys": 1000}},
    "sought": {
        "small": {"n": 53, "m": 37, "bits": 6},
        "full": {"n": 16777213, "m": 1048573, "bits": 20},
    },
    "distinct_so_far": {
        "small": {"b": 3, "n": 61, "keys": 23},
        "full": {"b": 512, "n": 131071, "keys": 4096},
    },
    "affine_gaps": {"small": {"b": 3, "n": 11, "m": 14}, "full": {"b": 4099, "n": 512, "m": 509}},
    "warping": {"small": {"b": 3, "n": 14, "band": 4}, "full": {"b": 4099, "n": 512, "band": 51}},
    "cipher": {"small": {"n": 21, "rounds": 3}, "full": {"n": 16777213, "rounds": 10}},
    "garch": {"small": {"b": 7, "t": 19}, "full": {"b": 65521, "t": 2520}},
    "deposited": {
        "small": {"n": 71, "h": 8, "w": 9},
        "full": {"n": 33554393, "h": 1024, "w": 1021},
    },
    "reachable": {"small": {"n": 13, "steps": 2}, "full": {"n": 2039, "steps": 11}},
    "bit_columns": {"small": {"blocks": 5}, "full": {"blocks": 1048573}},
    "thin_product": {"small": {"k": 211, "n": 3}, "full": {"k": 67108859, "n": 3}},
    "field_words": {
        "small": {"b": 5, "n": 31, "roots": 4},
        "full": {"b": 262147, "n": 255, "roots": 32},
    },
}  # fmt: skip
