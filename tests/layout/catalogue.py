"""Scheduled tile programs for every path through the synthesis, built by functions and named.

Knows the problem's form and no layout. Each entry says what a good solution must show besides being
right: which instructions it uses, whether conversions are excused, what it must say it refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.layout.synthesis.problem import Attribute, Pins, Tile, TileOp, TileProgram

ACCUMULATOR = {"i8": "i32", "u8": "i32", "i4": "i32"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A program and what its best solution must show.

    uses: instruction prefixes that must appear; avoids: prefixes that must not; converts: price
    classes of the conversions it needs, no others are allowed; says: words of which one must be in
    a "refused" or "fallback" reason; narrow: (op, bits): this copy cannot be as wide as its memory
    side allows.
    """

    program: TileProgram
    uses: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    converts: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    narrow: tuple[tuple[int, int], ...] = ()


def op(kind: str, inputs: str, output: str, **attributes: Attribute) -> TileOp:
    """A tile op; `inputs` are names separated by blanks."""
    return TileOp(kind, tuple(inputs.split()), (output,), tuple(attributes.items()))


def outer(
    name: str, dtype: str, axes: dict[str, int], along: str, pitch: int = 4096, alignment: int = 16
) -> Tile:
    """A global tile contiguous along one axis; the others step `pitch`, 64 * pitch, ..."""
    strides, step = [], pitch
    for axis in axes:
        strides.append(1 if axis == along else step)
        step *= 1 if axis == along else 64
    return Tile(name, dtype, tuple(axes.items()), "global", tuple(strides), alignment)


def near(name: str, dtype: str, **axes: int) -> Tile:
    """A shared tile."""
    return Tile(name, dtype, tuple(axes.items()), "shared")


def held(name: str, dtype: str, **axes: int) -> Tile:
    """A register tile."""
    return Tile(name, dtype, tuple(axes.items()), "register")


@dataclass(frozen=True, slots=True)
class Gemm:
    """A block's matrix product: shape, majors ("k" or "mn" of a, then b), family and threads."""

    dtype: str
    m: int
    n: int
    k: int
    family: str = "mma"
    a: str = "k"
    b: str = "k"
    threads: int = 128
    register_a: bool = False
    swapped: bool = False
    pitch: int = 4096
    alignment: int = 16
    epilogue: str = "store"
    stages: int = 1
    target: str = "sm_90a"
    turned: bool = False

    @property
    def name(self) -> str:
        flags = ("_rs" if self.register_a else "") + ("_swapped" if self.swapped else "")
        tail = "" if (self.pitch, self.alignment) == (4096, 16) else f"_pitch{self.pitch}"
        tail += "" if self.epilogue == "store" else f"_{self.epilogue}"
        tail += "" if self.stages == 1 else f"_stages{self.stages}"
        tail += "" if self.target == "sm_90a" else f"_{self.target}"
        tail += "_turned" if self.turned else ""
        shape = f"{self.m}x{self.n}x{self.k}_{self.a}_{self.b}_{self.threads}"
        return f"{self.family}_{self.dtype}_{shape}{flags}{tail}"

    def program(self) -> TileProgram:
        """g -> s for both operands, s -> r where the family reads registers, product, epilogue."""
        steps, tiles = [op("copy", "a_g", "a_s"), op("copy", "b_g", "b_s")], self._tiles()
        a, b = "a_s", "b_s"
        if self.family == "mma" or (self.register_a and not self.swapped):
            steps.append(op("copy", "a_s", "a_r"))
            tiles.append(held("a_r", self.dtype, m=self.m, k=self.k))
            a = "a_r"
        if self.family == "mma" or (self.register_a and self.swapped):
            steps.append(op("copy", "b_s", "b_r"))
            tiles.append(held("b_r", self.dtype, n=self.n, k=self.k))
            b = "b_r"
        steps.append(op("fill", "", "c", value=0))
        at = len(steps)
        steps.append(op("gemm", f"{a} {b}", "c", m="m", n="n", k="k"))
        self._finish(tiles, steps)
        pins = Pins(
            instructions=((at, self.family),),
            swapped=((at, self.swapped),) if self.swapped else (),
        )
        tiles = [self._turned(tile) for tile in tiles]
        return TileProgram(
            self.name, self.threads, tuple(tiles), tuple(steps), pins, target=self.target
        )

    def _turned(self, tile: Tile) -> Tile:
        """The tile with its axes (and strides) in the other order, where that is asked for."""
        if not self.turned:
            return tile
        return replace(tile, axes=tile.axes[::-1], strides=tile.strides[::-1])

    def _tiles(self) -> list[Tile]:
        along = {"a": "k" if self.a == "k" else "m", "b": "k" if self.b == "k" else "n"}
        shapes = {"a": {"m": self.m, "k": self.k}, "b": {"n": self.n, "k": self.k}}
        tiles = []
        for name, axes in shapes.items():
            at = (along[name], self.pitch, self.alignment)
            tiles += [
                outer(f"{name}_g", self.dtype, axes, *at),
                near(f"{name}_s", self.dtype, **axes),
            ]
        tiles.append(held("c", ACCUMULATOR.get(self.dtype, "f32"), m=self.m, n=self.n))
        return tiles

    def _finish(self, tiles: list[Tile], steps: list[TileOp]) -> None:
        dtype, shape = ACCUMULATOR.get(self.dtype, "f32"), {"m": self.m, "n": self.n}
        source = "c"
        if self.epilogue in ("cast", "staged"):
            dtype, source = self.dtype, "d"
            tiles.append(held("d", dtype, **shape))
            steps.append(op("cast", "c", "d"))
        if self.epilogue == "staged":
            tiles.append(near("d_s", dtype, **shape))
            steps.append(op("copy", source, "d_s"))
            source = "d_s"
        tiles.append(outer("d_g", dtype, shape, "n", self.pitch, self.alignment))
        steps.append(op("copy", source, "d_g"))


def _products() -> Iterator[Entry]:
    """mma.sync and wgmma, every type, each operand K- or MN-major where the hardware allows."""
    majors = [(a, b) for a in ("k", "mn") for b in ("k", "mn")]
    for a, b in majors:
        matrix = ("mma.m16n8k16", "ldmatrix.x4")
        yield Entry(Gemm("f16", 128, 128, 32, "mma", a, b).program(), uses=matrix)
        yield Entry(Gemm("bf16", 128, 64, 64, "mma", a, b, 256).program(), uses=matrix)
        wide = Gemm("f16", 128, 128, 64, "wgmma", a, b, 256)
        yield Entry(wide.program(), uses=("wgmma.m64n128k16.f16.ss", "tma.load"))
        tall = Gemm("bf16", 128, 192, 64, "wgmma", a, b, 256)
        yield Entry(tall.program(), uses=("wgmma", "tma.load"))
    yield Entry(Gemm("tf32", 64, 64, 32).program(), uses=("mma.m16n8k8.tf32",))
    for a, b in (("mn", "k"), ("k", "mn")):
        yield Entry(Gemm("tf32", 64, 64, 32, "mma", a, b).program(), uses=("mma.m16n8k8.tf32",))
    for dtype in ("e4m3", "e5m2", "i8"):
        name = {"i8": "s8"}.get(dtype, dtype)
        yield Entry(Gemm(dtype, 128, 64, 64).program(), uses=(f"mma.m16n8k32.{name}", "ldmatrix"))
        yield Entry(Gemm(dtype, 128, 128, 128, "wgmma", threads=256).program(), uses=("wgmma",))
    yield Entry(Gemm("i8", 64, 64, 64, "mma", "mn", "k").program(), uses=("mma.m16n8k32.s8",))
    yield Entry(Gemm("i4", 64, 64, 128).program(), uses=("mma.m16n8k64.s4",))
    yield Entry(Gemm("tf32", 128, 128, 32, "wgmma", threads=256).program(), uses=("wgmma",))
    for dtype, k, b in (("f16", 64, "k"), ("bf16", 64, "mn"), ("e4m3", 128, "k")):
        rs = Gemm(dtype, 128, 128, k, "wgmma", "k", b, 256, register_a=True)
        yield Entry(rs.program(), uses=("wgmma", "ldmatrix"))


def _shapes() -> Iterator[Entry]:
    """64x8 to 256x256, widths that are no power of two, three warp groups, swapped operands."""
    for m, n, threads in (
        (64, 8, 128), (64, 16, 128), (64, 256, 128), (256, 64, 256), (256, 128, 256),
        (256, 256, 512), (192, 128, 384), (192, 168, 384), (64, 24, 128), (64, 40, 128),
        (128, 80, 256), (64, 168, 128), (64, 216, 128),
    ):  # fmt: skip
        yield Entry(Gemm("bf16", m, n, 64, "wgmma", threads=threads).program(), uses=("wgmma",))
    yield Entry(Gemm("e4m3", 64, 216, 128, "wgmma").program(), uses=("wgmma.m64n216k32.e4m3",))
    for m, n, threads in ((64, 8, 128), (64, 24, 128), (128, 40, 128), (256, 128, 256)):
        program = Gemm("bf16", m, n, 32, threads=threads).program()
        yield Entry(program, uses=("mma.m16n8k16",))
    swapped = Gemm("f16", 32, 128, 64, "mma", swapped=True)
    yield Entry(swapped.program(), uses=("mma.m16n8k16",))
    for dtype, m, k in (("bf16", 16, 64), ("e4m3", 24, 128)):
        small = Gemm(dtype, m, 128, k, "wgmma", threads=256, swapped=True)
        yield Entry(small.program(), uses=(f"wgmma.m64n{m}k",))


def attention(
    dtype: str, family: str, rows: int, keys: int, head: int, threads: int
) -> TileProgram:
    """softmax(Q K^T) V of one block of keys; the weights feed the second product from registers."""
    wgmma = family == "wgmma"
    tiles = [
        outer("q_g", dtype, {"m": rows, "d": head}, "d"), near("q_s", dtype, m=rows, d=head),
        outer("k_g", dtype, {"n": keys, "d": head}, "d"), near("k_s", dtype, n=keys, d=head),
        outer("v_g", dtype, {"e": head, "n": keys}, "n" if dtype == "e4m3" else "e"),
        near("v_s", dtype, e=head, n=keys),
        held("s", "f32", m=rows, n=keys), held("top", "f32", m=rows),
        held("p", "f32", m=rows, n=keys), held("total", "f32", m=rows),
        held("w", dtype, m=rows, n=keys),
        held("o", "f32", m=rows, e=head), held("y", "f32", m=rows, e=head),
        outer("y_g", "f32", {"m": rows, "e": head}, "e"),
    ]  # fmt: skip
    steps = [op("copy", f"{name}_g", f"{name}_s") for name in "qkv"]
    names = {name: f"{name}_s" for name in "qkv"}
    if not wgmma:
        shapes = {
            "q": {"m": rows, "d": head},
            "k": {"n": keys, "d": head},
            "v": {"e": head, "n": keys},
        }
        for name, shape in shapes.items():
            names[name] = f"{name}_r"
            tiles.append(held(f"{name}_r", dtype, **shape))
            steps.append(op("copy", f"{name}_s", f"{name}_r"))
    steps += [
        op("fill", "", "s", value=0),
        op("gemm", f"{names['q']} {names['k']}", "s", m="m", n="n", k="d"),
        op("reduce", "s", "top", axis="n", fn="max"),
        op("map", "s top", "p", expression="exp((s - top) * 0.125)"),
        op("reduce", "p", "total", axis="n", fn="sum"),
        op("cast", "p", "w"),
        op("fill", "", "o", value=0),
        op("gemm", f"w {names['v']}", "o", m="m", n="e", k="n"),
        op("map", "o total", "y", expression="o / total"),
        op("copy", "y", "y_g"),
    ]
    pins = Pins(tuple((at, family) for at, step in enumerate(steps) if step.kind == "gemm"))
    name = f"attention_{family}_{dtype}_{rows}x{keys}x{head}"
    return TileProgram(name, threads, tuple(tiles), tuple(steps), pins)


def _attentions() -> Iterator[Entry]:
    for dtype in ("bf16", "e4m3"):
        yield Entry(attention(dtype, "mma", 64, 64, 64, 128), uses=("mma",))
        yield Entry(attention(dtype, "wgmma", 128, 128, 128, 256), uses=("wgmma",))


def packed_weights(family: str, m: int, n: int, k: int, threads: int) -> TileProgram:
    """int4 weights as the register operand: load, widen, scale per row, times bf16 activations."""
    w = {"m": m, "k": k}
    tiles = [
        replace(outer("w_g", "i4", w, "k"), strides=(4096, 1)),
        near("w_s", "i4", m=m, k=k),
        held("w_r", "i4", m=m, k=k), held("wide", "bf16", m=m, k=k), held("a", "bf16", m=m, k=k),
        outer("scale_g", "bf16", {"m": m}, "m"), held("scale", "bf16", m=m),
        outer("x_g", "bf16", {"n": n, "k": k}, "k"), near("x_s", "bf16", n=n, k=k),
        held("c", "f32", m=m, n=n), outer("c_g", "f32", {"m": m, "n": n}, "m"),
    ]  # fmt: skip
    steps = [op("copy", "w_g", "w_s"), op("copy", "x_g", "x_s"), op("copy", "w_s", "w_r")]
    x = "x_s"
    if family == "mma":
        tiles.append(held("x_r", "bf16", n=n, k=k))
        steps.append(op("copy", "x_s", "x_r"))
        x = "x_r"
    steps += [
        op("copy", "scale_g", "scale"),
        op("cast", "w_r", "wide"),
        op("map", "wide scale", "a", expression="wide * scale"),
        op("fill", "", "c", value=0),
        op("gemm", f"a {x}", "c", m="m", n="n", k="k"),
        op("copy", "c", "c_g"),
    ]
    pins = Pins(tuple((at, family) for at, step in enumerate(steps) if step.kind == "gemm"))
    name = f"w4a16_{family}_{m}x{n}x{k}"
    return TileProgram(name, threads, tuple(tiles), tuple(steps), pins)


def chunk_state(family: str, n: int, p: int, length: int, threads: int) -> TileProgram:
    """sum over l of (decay[l] b[l, n]) x[l, p]: an operand scaled along K in registers."""
    tiles = [
        outer("b_g", "bf16", {"n": n, "l": length}, "n"), near("b_s", "bf16", n=n, l=length),
        held("b", "bf16", n=n, l=length), held("a", "bf16", n=n, l=length),
        outer("decay_g", "f32", {"l": length}, "l"), held("decay", "f32", l=length),
        outer("x_g", "bf16", {"p": p, "l": length}, "p"), near("x_s", "bf16", p=p, l=length),
        held("state", "f32", n=n, p=p), outer("state_g", "f32", {"n": n, "p": p}, "p"),
    ]  # fmt: skip
    steps = [op("copy", "b_g", "b_s"), op("copy", "x_g", "x_s"), op("copy", "b_s", "b")]
    x = "x_s"
    if family == "mma":
        tiles.append(held("x", "bf16", p=p, l=length))
        steps.append(op("copy", "x_s", "x"))
        x = "x"
    steps += [
        op("copy", "decay_g", "decay"),
        op("map", "b decay", "a", expression="b * decay"),
        op("fill", "", "state", value=0),
        op("gemm", f"a {x}", "state", m="n", n="p", k="l"),
        op("copy", "state", "state_g"),
    ]
    pins = Pins(tuple((at, family) for at, step in enumerate(steps) if step.kind == "gemm"))
    return TileProgram(f"chunk_state_{family}", threads, tuple(tiles), tuple(steps), pins)


def _mixed() -> Iterator[Entry]:
    yield Entry(packed_weights("mma", 64, 32, 128, 128), uses=("mma.m16n8k16", "ld.128"))
    yield Entry(packed_weights("wgmma", 128, 16, 128, 256), uses=("wgmma.m64n16k16.bf16.rs",))
    yield Entry(chunk_state("mma", 64, 64, 64, 128), uses=("mma.m16n8k16", "ldmatrix.x4.trans"))
    yield Entry(chunk_state("wgmma", 128, 64, 64, 256), uses=("wgmma.m64n64k16.bf16.rs",))


def transposition(dtype: str, rows: int, columns: int, threads: int) -> TileProgram:
    """Rows in, columns out, through shared memory and registers."""
    shape = {"m": rows, "n": columns}
    tiles = (
        outer("x_g", dtype, shape, "n"), near("x_s", dtype, **shape),
        held("x", dtype, **shape), outer("y_g", dtype, shape, "m"),
    )  # fmt: skip
    steps = (op("copy", "x_g", "x_s"), op("copy", "x_s", "x"), op("copy", "x", "y_g"))
    return TileProgram(f"transpose_{dtype}_{rows}x{columns}", threads, tiles, steps)


def folding(fn: str, axis: str, rows: int, columns: int, threads: int) -> TileProgram:
    """One reduction over a row-major f32 tile loaded to registers; the result is stored."""
    shape = {"m": rows, "n": columns}
    kept = "m" if axis == "n" else "n"
    tiles = (
        outer("x_g", "f32", shape, "n"), held("x", "f32", **shape),
        held("y", "f32", **{kept: shape[kept]}), outer("y_g", "f32", {kept: shape[kept]}, kept),
    )  # fmt: skip
    steps = (
        op("copy", "x_g", "x"),
        op("reduce", "x", "y", axis=axis, fn=fn),
        op("copy", "y", "y_g"),
    )
    name = f"{fn}_over_{axis}_{rows}x{columns}_{threads}"
    return TileProgram(name, threads, tiles, steps)


def normalisation(rows: int, columns: int, threads: int) -> TileProgram:
    """Rows divided by their root mean square, times a weight per column."""
    shape = {"m": rows, "n": columns}
    tiles = (
        outer("x_g", "bf16", shape, "n"), held("x", "bf16", **shape), held("f", "f32", **shape),
        held("squares", "f32", **shape), held("total", "f32", m=rows),
        outer("g_g", "bf16", {"n": columns}, "n"), held("g", "bf16", n=columns),
        held("r", "f32", **shape), held("y", "bf16", **shape), outer("y_g", "bf16", shape, "n"),
    )  # fmt: skip
    steps = (
        op("copy", "x_g", "x"),
        op("cast", "x", "f"),
        op("map", "f", "squares", expression="f * f"),
        op("reduce", "squares", "total", axis="n", fn="sum"),
        op("copy", "g_g", "g"),
        op("map", "f total g", "r", expression=f"f * rsqrt(total / {columns} + 1e-6) * g"),
        op("cast", "r", "y"),
        op("copy", "y", "y_g"),
    )
    return TileProgram(f"rms_norm_{rows}x{columns}_{threads}", threads, tiles, steps)


def _memory_bound() -> Iterator[Entry]:
    yield Entry(transposition("f16", 64, 64, 128))
    yield Entry(transposition("f32", 64, 32, 128))
    yield Entry(transposition("i8", 64, 64, 128))
    yield Entry(folding("sum", "n", 64, 128, 128))
    yield Entry(folding("max", "n", 4, 1024, 128))
    yield Entry(folding("sum", "m", 64, 128, 128))
    yield Entry(folding("min", "m", 64, 32, 32))
    yield Entry(normalisation(16, 512, 128))
    yield Entry(normalisation(2, 2048, 256))


def _epilogues() -> Iterator[Entry]:
    staged = ("stmatrix", "tma.store")
    yield Entry(
        Gemm("bf16", 128, 128, 64, "wgmma", threads=256, epilogue="staged").program(), staged
    )
    yield Entry(Gemm("f16", 128, 64, 32, "mma", epilogue="staged").program(), staged)
    yield Entry(Gemm("bf16", 64, 64, 64, "wgmma", epilogue="cast").program(), ("st.32",))


def biased(m: int, n: int, k: int, threads: int) -> TileProgram:
    """A product whose epilogue adds a bias per column and takes the sigmoid-weighted value."""
    plain = Gemm("bf16", m, n, k, "wgmma", threads=threads).program()
    tiles = (
        *plain.tiles, outer("bias_g", "f32", {"n": n}, "n"), held("bias", "f32", n=n),
        held("e", "f32", m=m, n=n),
    )  # fmt: skip
    steps = (
        *plain.ops[:-1],
        op("copy", "bias_g", "bias"),
        op("map", "c bias", "e", expression="(c + bias) * sigmoid(c + bias)"),
        op("copy", "e", "d_g"),
    )
    return TileProgram(f"bias_{m}x{n}x{k}", threads, tiles, steps, plain.pins)


def _variants() -> Iterator[Entry]:
    """Several stages, axes in the other order, an older target, work on the accumulators."""
    ring = Gemm("bf16", 128, 128, 64, "wgmma", threads=256, stages=4)
    yield Entry(ring.program(), uses=("wgmma", "tma.load"))
    for family in ("mma", "wgmma"):
        turned = Gemm("f16", 64, 64, 64, family, b="mn", turned=True)
        yield Entry(turned.program(), uses=(family,))
    old = Gemm("f16", 128, 64, 32, target="sm_80")
    newer = ("tma", "stmatrix", "wgmma")
    yield Entry(old.program(), uses=("mma", "ldmatrix.x4", "cp.async.16"), avoids=newer)
    yield Entry(biased(128, 64, 64, 256), uses=("wgmma",))


def rearranged(name: str, extent: int, threads: int, layouts: tuple[str, str]) -> TileProgram:
    """Elements loaded in one pinned thread-value layout and squared in another."""
    axes = {"n": extent}
    tiles = (
        outer("x_g", "f32", axes, "n"), replace(held("x", "f32", **axes), layout=layouts[0]),
        replace(held("y", "f32", **axes), layout=layouts[1]), outer("y_g", "f32", axes, "n"),
    )  # fmt: skip
    steps = (
        op("copy", "x_g", "x"),
        op("map", "x", "y", expression="x * x"),
        op("copy", "y", "y_g"),
    )
    return TileProgram(f"rearranged_{name}", threads, tiles, steps)


def _conversions() -> Iterator[Entry]:
    """Two layouts of one tile that disagree: within the thread a map reads it as it lies."""
    cases = (
        ("", 128, 32, ("(32,(2,2)):(4,(1,2))", "(32,(2,2)):(4,(2,1))")),
        ("shuffle", 64, 32, ("(32,2):(2,1)", "((2,16),2):((1,4),2)")),
        ("shared", 256, 64, ("(64,4):(4,1)", "(64,4):(1,64)")),
    )
    for price, extent, threads, layouts in cases:
        program = rearranged(price or "within", extent, threads, layouts)
        yield Entry(program, converts=(price,) if price else ())


def _fallbacks() -> Iterator[Entry]:
    """Strides and addresses that forbid TMA, 16-byte vectors, or any vector at all."""
    says = ("tma", "TMA")
    for pitch, alignment in ((4100, 16), (4098, 16), (4097, 16), (4096, 8), (4096, 4)):
        gemm = Gemm("bf16", 64, 64, 64, "wgmma", pitch=pitch, alignment=alignment)
        program = gemm.program()
        yield Entry(
            _renamed(program, f"{program.name}_align{alignment}"), avoids=("tma",), says=says
        )
    yield Entry(Gemm("f16", 64, 64, 32, pitch=4100).program(), avoids=("tma",), says=says)


def _renamed(program: TileProgram, name: str) -> TileProgram:
    return TileProgram(name, program.threads, program.tiles, program.ops, program.pins)


def catalogue() -> tuple[Entry, ...]:
    """Every entry, names unique."""
    groups = (
        _products, _shapes, _attentions, _mixed, _memory_bound, _epilogues, _variants,
        _conversions, _fallbacks,
    )  # fmt: skip
    return tuple(entry for group in groups for entry in group())
