"""Programs that join what other files have one by one: loops, ranks, products, codes and windows.

`tilewright tune experiments/corpus/hybrids.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    cast,
    contract,
    cos,
    cumulative,
    exp,
    floor,
    fold,
    indices,
    log,
    maximum,
    minimum,
    normal,
    offsets,
    operator,
    positive,
    probabilities,
    recur,
    reduce,
    relu,
    rsqrt,
    scan,
    scatter,
    sigmoid,
    sin,
    sqrt,
    tanh,
    top,
    uniform,
    where,
)


@operator
def both_directions(g: Graph, b: int, t: int, d: int, q: int) -> None:
    """States of two gated averages, one of them backward, that a few queries attend to."""
    B, T, D, Q, E = g.axes(b=b, t=t, d=d, q=q, e=d)
    x = cast(g.input("X", (B, T, D), "bf16"), "f32")
    gate = sigmoid(g.input("G", (B, T, D), "bf16"))
    pair = gate, (1 - gate) * x
    states = scan("affine", pair, T)[1] + scan("affine", pair, T, backward=True)[1]
    h = cast(states, "bf16")
    s = contract(g.input("Q", (Q, D), "bf16"), h, over=D) * d**-0.5
    p = exp(s - reduce("max", s, over=T))
    o = contract(cast(p, "bf16"), h.at(d=E), over=T) / reduce("sum", p, over=T)
    g.output("O", o, "bf16", (B, Q, E))


@operator
def posteriors(g: Graph, b: int, t: int, n: int) -> None:
    """Hidden states of chains by what comes before and behind: two loops, one along the other."""
    T, B, I, J, U = g.axes(t=t, b=b, i=n, j=n, u=t)  # noqa: E741
    a = g.input("A", (I, J), "f32", values=probabilities())
    seen = g.input("E", (T, B, I), "f32", values=uniform(0.1, 1))
    alpha = g.state(T, (B, I), 1.0 / n)
    here = alpha * seen
    here = here / reduce("sum", here, over=I)
    g.output("end", recur(alpha, reduce("sum", here * a, over=I).at(j=I)), "f32", (B, I))
    beta = g.state(U, (B, J), 1.0)
    behind = seen.at(t=t - 1 - U, i=J)
    back = reduce("sum", a * (beta * behind), over=J).at(i=J)
    recur(beta, back / reduce("sum", back, over=J))
    both = here * beta.at(u=t - 1 - T, j=I)
    g.output("P", both / reduce("sum", both, over=I), "f32", (T, B, I))


@operator
def run_lengths(g: Graph, b: int, n: int) -> None:
    """Rows of bytes as runs: each run's byte, how long it is, and how many there are."""
    B, N, R = g.axes(b=b, n=n, r=n)
    x = cast(g.input("X", (B, N), "u8", values=uniform(0, 2)), "i32")
    new = cast((g.iota(N) == 0) | (x != x.at(n=N - 1, fill=0)), "i32")
    place = cumulative("sum", new, N) - 1
    one = g.constant(1, "i32") + 0 * place
    g.output("length", scatter("sum", one, {B: B, R: place}), "i32", (B, R))
    g.output("byte", scatter("max", x, {B: B, R: place}), "i32", (B, R))
    g.output("runs", reduce("sum", new, over=N), "i32", (B,))


@operator
def inequality(g: Graph, b: int, n: int) -> None:
    """How unequal the numbers of each row are, and which share the largest tenth has."""
    B, N, R = g.axes(b=b, n=n, r=n)
    values, place = top(g.input("X", (B, N), "f32", values=positive()), N, R)
    total = reduce("sum", values, over=R)
    rank = cast(g.iota(R), "f32")
    weighed = reduce("sum", values * (n - rank), over=R)
    g.output("gini", (2 * weighed / total - (n + 1)) / n, "f32", (B,))
    held = cumulative("sum", values, R)
    g.output("share", held.at(r=n // 10) / total, "f32", (B,))
    w = g.input("W", (B, N), "f32")
    g.output("order", cumulative("sum", w.at(n=place), R), "f32", (B, R))


@operator
def trace_of_three(g: Graph, b: int, n: int) -> None:
    """Traces of products of three matrices, and of their squares."""
    B, I, J, K = g.axes(b=b, i=n, j=n, k=n)  # noqa: E741
    x, y = g.input("X", (B, I, J), "bf16"), g.input("Y", (B, J, K), "bf16")
    z = g.input("Z", (B, K, I), "bf16")
    xy = contract(x, y, over=J)
    g.output("trace", reduce("sum", xy * z, over=(I, K)) * (1 / n), "f32", (B,))
    g.output("norm", sqrt(reduce("sum", xy * xy, over=(I, K))), "f32", (B,))


@operator
def eight_bit_step(g: Graph, blocks: int, n: int) -> None:
    """A step of momentum whose state is i8 with a scale for each block, signs of it applied."""
    B, N = g.axes(b=blocks, n=n)
    w, d = g.input("W", (B, N), "bf16"), g.input("G", (B, N), "bf16")
    m = cast(g.input("M", (B, N), "i8"), "f32") * g.input("S", (B,), "f32", values=positive()) / 127
    mixed = 0.9 * m + 0.1 * d
    step = where(mixed > 0, 1.0, where(mixed < 0, -1.0, 0.0))
    g.output("new", w * (1 - 1e-3) - 1e-3 * step, "bf16", (B, N))
    kept = 0.99 * m + 0.01 * d
    most = maximum(reduce("max", absolute(kept), over=N), 1e-8)
    g.output("M2", cast(floor(kept * (127 / most) + 0.5), "i8"), "i8", (B, N))
    g.output("S2", most, "f32", (B,))


@operator
def folded_attention(g: Graph, b: int, h: int, n: int, d: int) -> None:
    """Weighted means by a merge that is written out: the largest, the sum, and what it weighs."""
    B, H, N, D = g.axes(b=b, h=h, n=n, d=d)
    q, k = g.input("Q", (B, H, D), "f32"), g.input("K", (B, H, N, D), "bf16")
    s = reduce("sum", q * k, over=D) * d**-0.5

    def merge(a, b):
        (am, a1, a2), (bm, b1, b2) = a, b
        m = maximum(am, bm)
        u, v = exp(am - m), exp(bm - m)
        return m, a1 * u + b1 * v, a2 * u + b2 * v

    age = cast(g.input("age", (B, N), "f32", values=positive()), "f32")
    m, total, old = fold(merge, (s, 1.0 + 0 * s, age + 0 * s), N)
    g.output("mean", old / total, "f32", (B, H))
    g.output("lse", m + log(total), "f32", (B, H))


@operator
def pooled_layers(g: Graph, b: int, y: int, x: int, c: int, f: int, n: int) -> None:
    """A convolution, its largest of two by two, the mean of all places, and a layer."""
    B, Y, X, P, Q, R, S, C, F, N = g.axes(
        b=b, y=y // 2, x=x // 2, p=2, q=2, r=3, s=3, c=c, f=f, n=n
    )
    t = g.tensor("I", (b, y, x, c), "f16", fill=0)
    w = g.input("W", (F, R, S, C), "f16", values=normal((9 * c) ** -0.5))
    v = contract(t[B, 2 * Y + P + R - 1, 2 * X + Q + S - 1, C], w, over=(R, S, C))
    v = reduce("max", relu(v), over=(P, Q))
    mean = reduce("sum", v, over=(Y, X)) * (4 / (y * x))
    last = g.input("V", (N, F), "f16", values=normal(f**-0.5))
    g.output("Z", contract(cast(mean, "f16"), last, over=F), "f32", (B, N))


@operator
def gated_dilation(g: Graph, b: int, t: int, c: int) -> None:
    """A causal convolution of two taps far apart, gated, with what is left and what is skipped."""
    B, T, K, C, D, E = g.axes(b=b, t=t, k=2, c=c, d=c, e=c)
    x = g.tensor("X", (b, t, c), "bf16", fill=0)
    far = x[B, T - 64 * K, C]
    wf, wg = (g.input(s, (D, K, C), "bf16", values=normal((2 * c) ** -0.5)) for s in ("F", "G"))
    h = tanh(contract(far, wf, over=(K, C))) * sigmoid(contract(far, wg, over=(K, C)))
    h = cast(h, "bf16")
    skip, left = (
        contract(h, g.input(s, (E, D), "bf16", values=normal(c**-0.5)), over=D) for s in ("S", "R")
    )
    g.output("skip", skip, "bf16", (B, T, E))
    g.output("Y", left + x[B, T, E], "bf16", (B, T, E))


@operator
def handed_over(g: Graph, b: int, t: int, u: int, d: int) -> None:
    """A second loop that begins where a first one ends, and reads what it comes to."""
    T, B, D, K, U = g.axes(t=t, b=b, d=d, k=d, u=u)
    w, v = (g.input(s, (D, K), "bf16", values=normal(0.5 * d**-0.5)) for s in ("W", "V"))
    x = g.input("X", (T, B, D), "bf16")
    first = g.state(T, (B, K))
    end = recur(first, tanh(contract(w, cast(first, "bf16"), over=K) + x).at(d=K))
    second = g.state(U, (B, K), end)
    new = tanh(contract(v, cast(second, "bf16"), over=K) + end.at(k=D))
    g.output("Y", new, "bf16", (U, B, D))
    g.output("end", recur(second, new.at(d=K)), "f32", (B, K))


@operator
def unlike_floats(g: Graph, m: int, n: int, k: int) -> None:
    """Products of f16 and bf16, and of e5m2 and e4m3, added."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (M, K), "f16"), g.input("W", (N, K), "bf16")
    a, b = g.input("A", (M, K), "e5m2"), g.input("B", (N, K), "e4m3")
    y = contract(x, w, over=K) + 0.5 * contract(a, b, over=K)
    g.output("Y", y, "f32", (M, N))


@operator
def spectrum(g: Graph, b: int, frames: int, size: int, hop: int, f: int, mel: int) -> None:
    """Windows of a signal to powers of frequencies, to bands and to logarithms, less their mean."""
    B, T, K, F, M = g.axes(b=b, t=frames, k=size, f=f, m=mel)
    t = g.tensor("X", (b, (frames - 1) * hop + size), "f32")
    window = 0.5 - 0.5 * cos(g.iota(K) * (2 * math.pi / size))
    x = t[B, hop * T + K] * window
    angle = g.iota(F) * g.iota(K) * (2 * math.pi / size)
    re = reduce("sum", x * cos(angle), over=K)
    im = reduce("sum", x * sin(angle), over=K)
    bands = contract(re * re + im * im, g.input("W", (M, F), "f32", values=uniform(0, 0.1)), over=F)
    z = log(bands + 1e-6)
    g.output("Z", z - reduce("sum", z, over=T) * (1 / frames), "f32", (B, M, T))


@operator
def fitted_curves(g: Graph, b: int, n: int, p: int) -> None:
    """Normal equations of polynomials through weighed points, in f64."""
    B, N, P, Q = g.axes(b=b, n=n, p=p, q=p)
    x = g.input("x", (B, N), "f64", values=uniform(-1, 1))
    y, w = g.input("y", (B, N), "f64"), g.input("w", (B, N), "f64", values=positive())
    power = exp(log(absolute(x) + 1e-3) * cast(g.iota(P), "f64"))
    power = where((x < 0) & ((g.iota(P) & 1) == 1), -power, power)
    g.output("A", reduce("sum", w * power * power.at(p=Q), over=N), "f64", (B, P, Q))
    g.output("c", reduce("sum", w * power * y, over=N), "f64", (B, P))


@operator
def concordance(g: Graph, b: int, n: int) -> None:
    """Pairs that two orders agree on, less those that they do not, and ties of each."""
    B, I, J = g.axes(b=b, i=n, j=n)  # noqa: E741
    x, y = (cast(g.input(s, (B, I), "i16"), "i32") for s in ("x", "y"))

    def sign(v):
        return where(v > 0, 1, where(v < 0, -1, 0))

    dx, dy = sign(x - x.at(i=J)), sign(y - y.at(i=J))
    g.output("tau", reduce("sum", dx * dy, over=(I, J)), "i32", (B,))
    g.output("ties", reduce("sum", 1 - dx * dx, over=(I, J)), "i32", (B,))


@operator
def box_sums(g: Graph, b: int, n: int, r: int) -> None:
    """Means and deviations in boxes around every pixel, by sums over all that is before."""
    B, Y, X = g.axes(b=b, y=n, x=n)
    v = cast(g.input("I", (B, Y, X), "u8"), "f32") * (1 / 255)
    found = []
    for one in (v, v * v):
        s = cumulative("sum", cumulative("sum", one, Y), X)
        low_y, low_x = maximum(g.iota(Y) - r - 1, -1), maximum(g.iota(X) - r - 1, -1)
        top_y, top_x = minimum(g.iota(Y) + r, n - 1), minimum(g.iota(X) + r, n - 1)

        def at(py, px, s=s):
            inside = (py >= 0) & (px >= 0)
            return where(inside, s.at(y=maximum(py, 0), x=maximum(px, 0)), 0.0)

        total = at(top_y, top_x) - at(low_y, top_x) - at(top_y, low_x) + at(low_y, low_x)
        found.append(total / cast((top_y - low_y) * (top_x - low_x), "f32"))
    mean, square = found
    g.output("mean", mean, "f32", (B, Y, X))
    g.output("deviation", sqrt(maximum(square - mean * mean, 0.0)), "f32", (B, Y, X))


@operator
def beams(g: Graph, b: int, k: int, n: int) -> None:
    """The best continuations of beams: over beams and words at once, and where each comes from."""
    B, K, N, R = g.axes(b=b, k=k, n=n, r=k)
    z = cast(g.input("Z", (B, K, N), "bf16"), "f32")
    m = reduce("max", z, over=N)
    logp = z - m - log(reduce("sum", exp(z - m), over=N)) + g.input("score", (B, K), "f32")
    L = g.axis("l", k * n)
    flat = logp.at(k=g.coordinate(L) // n, n=g.coordinate(L) % n)
    score, place = top(flat, L, R)
    g.output("new", score, "f32", (B, R))
    g.output("beam", place // n, "i32", (B, R))
    g.output("word", place % n, "i32", (B, R))


@operator
def bit_masked(g: Graph, b: int, h: int, n: int, d: int) -> None:
    """Attention under a mask of bits, 32 keys in a word, the same for all heads."""
    B, H, I, W, P = g.axes(b=b, h=h, i=n, w=n // 32, p=32)  # noqa: E741
    D, E = g.axes(d=d, e=d)
    q = g.input("Q", (B, H, I, D), "bf16")
    k, v = (g.tensor(s, (b, h, n, d), "bf16") for s in "KV")
    bits = g.input("mask", (B, I, W), "u32", values=uniform(0, 2**31 - 1))
    s = contract(q, k[B, H, 32 * W + P, D], over=D) * d**-0.5
    kept = ((bits >> cast(g.iota(P), "u32")) & 1) == 1
    s = where(kept | (g.coordinate(32 * W + P) == g.iota(I)), s, -1e30)
    p = exp(s - reduce("max", s, over=(W, P)))
    o = contract(cast(p, "bf16"), v[B, H, 32 * W + P, E], over=(W, P))
    g.output("O", o / reduce("sum", p, over=(W, P)), "bf16", (B, H, I, E))


@operator
def counted_joins(g: Graph, m: int, n: int) -> None:
    """How many keys of one table each key of another meets, what they sum to, and the last one."""
    M, N = g.axes(m=m, n=n)
    a, b = (g.input(s, (x,), "i64", values=indices(1000)) for s, x in (("a", M), ("b", N)))
    same = a == b
    g.output("count", reduce("sum", where(same, 1, 0), over=N), "i32", (M,))
    x = g.input("x", (N,), "f32")
    g.output("sum", reduce("sum", where(same, x, 0.0), over=N), "f32", (M,))
    g.output("last", reduce("max", where(same, g.iota(N), -1), over=N), "i32", (M,))


@operator
def unpacked(g: Graph, rows: int, total: int, d: int) -> None:
    """Tokens laid end to end: whose each is, its place there, and a bias that depends on both."""
    T, R, D = g.axes(t=total, r=rows, d=d)
    start = g.input("start", (R,), "i32", values=offsets(total))
    own = reduce("sum", cast(start <= g.iota(T), "i32"), over=R) - 1
    own = maximum(own, 0)
    place = g.iota(T) - start.at(r=own)
    x = cast(g.input("X", (T, D), "bf16"), "f32")
    bias = g.tensor("bias", (rows, d), "bf16")[own, D]
    fade = exp(-0.01 * cast(maximum(place, 0), "f32"))
    y = x + bias * fade
    g.output("Y", y * rsqrt(reduce("sum", y * y, over=D) * (1 / d) + 1e-6), "bf16", (T, D))
    g.output("place", place, "i32", (T,))


@operator
def ranked_dense(g: Graph, n: int, steps: int) -> None:
    """The leading vector of a large matrix, normalised at each step, and its value."""
    T, I, J = g.axes(t=steps, i=n, j=n)  # noqa: E741
    a = g.input("A", (I, J), "bf16", values=uniform(0, 2 / n))
    v = g.state(T, (J,), n**-0.5)
    w = reduce("sum", a * v, over=J)
    size = sqrt(reduce("sum", w * w, over=I))
    g.output("size", size, "f32", (T,))
    g.output("v", recur(v, (w / size).at(i=J)), "f32", (J,))


@operator
def rounded_codes(g: Graph, m: int, k: int, group: int) -> None:
    """Rows in four bits with a scale and a least of each group, packed in two, and how far off."""
    M, G, P, H = g.axes(m=m, g=k // group, p=group // 2, h=2)
    x = cast(g.tensor("X", (m, k), "f16")[M, G * group + 2 * P + H], "f32")
    low, high = (reduce(s, x, over=(P, H)) for s in ("min", "max"))
    scale = maximum((high - low) / 15, 1e-6)
    code = minimum(maximum(floor((x - low) / scale + 0.5), 0.0), 15.0)
    whole = cast(code, "i32")
    g.output("Q", cast(whole.at(h=0) | (whole.at(h=1) << 4), "u8"), "u8", (M, G, P))
    g.output("scale", scale, "f16", (M, G))
    g.output("low", low, "f16", (M, G))
    off = code * scale + low - x
    g.output("off", reduce("sum", off * off, over=(G, P, H)), "f32", (M,))


EXTENTS = {
    "both_directions": {
        "small": {"b": 2, "t": 24, "d": 32, "q": 5},
        "full": {"b": 16, "t": 4096, "d": 512, "q": 64},
    },
    "posteriors": {"small": {"b": 2, "t": 6, "n": 5}, "full": {"b": 512, "t": 256, "n": 128}},
    "run_lengths": {"small": {"b": 3, "n": 40}, "full": {"b": 1024, "n": 65536}},
    "inequality": {"small": {"b": 3, "n": 33}, "full": {"b": 4096, "n": 2048}},
    "trace_of_three": {"small": {"b": 2, "n": 24}, "full": {"b": 32, "n": 1024}},
    "eight_bit_step": {"small": {"blocks": 5, "n": 64}, "full": {"blocks": 524288, "n": 256}},
    "folded_attention": {
        "small": {"b": 2, "h": 3, "n": 21, "d": 8},
        "full": {"b": 64, "h": 32, "n": 4096, "d": 64},
    },
    "pooled_layers": {
        "small": {"b": 2, "y": 6, "x": 8, "c": 16, "f": 24, "n": 10},
        "full": {"b": 64, "y": 56, "x": 56, "c": 64, "f": 128, "n": 1000},
    },
    "gated_dilation": {
        "small": {"b": 2, "t": 80, "c": 16},
        "full": {"b": 8, "t": 16384, "c": 256},
    },
    "handed_over": {
        "small": {"b": 3, "t": 4, "u": 5, "d": 16},
        "full": {"b": 64, "t": 128, "u": 128, "d": 512},
    },
    "unlike_floats": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "spectrum": {
        "small": {"b": 2, "frames": 7, "size": 16, "hop": 6, "f": 9, "mel": 5},
        "full": {"b": 16, "frames": 3000, "size": 512, "hop": 160, "f": 257, "mel": 80},
    },
    "fitted_curves": {"small": {"b": 3, "n": 30, "p": 4}, "full": {"b": 4096, "n": 2048, "p": 8}},
    "concordance": {"small": {"b": 2, "n": 33}, "full": {"b": 64, "n": 4096}},
    "box_sums": {"small": {"b": 2, "n": 13, "r": 2}, "full": {"b": 8, "n": 2048, "r": 7}},
    "beams": {"small": {"b": 3, "k": 4, "n": 21}, "full": {"b": 64, "k": 8, "n": 128256}},
    "bit_masked": {
        "small": {"b": 1, "h": 2, "n": 64, "d": 16},
        "full": {"b": 2, "h": 16, "n": 4096, "d": 128},
    },
    "counted_joins": {"small": {"m": 20, "n": 33}, "full": {"m": 65536, "n": 65536}},
    "unpacked": {
        "small": {"rows": 6, "total": 50, "d": 24},
        "full": {"rows": 512, "total": 131072, "d": 1024},
    },
    "ranked_dense": {"small": {"n": 40, "steps": 4}, "full": {"n": 16384, "steps": 64}},
    "rounded_codes": {
        "small": {"m": 5, "k": 64, "group": 16},
        "full": {"m": 16384, "k": 8192, "group": 128},
    },
}
