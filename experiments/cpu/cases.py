"""What is compared: operators with arguments, in groups that have a goal each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    group: str
    operator: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a group's ratios (peer time / our time) should reach."""

    geomean: float | None
    least: float | None

    def __str__(self) -> str:
        mean = [f"mean {self.geomean}"] if self.geomean else []
        return ", ".join(mean + ([f"every case {self.least}"] if self.least else []))


GOALS = {
    "matmul f32": Goal(1.05, 0.93),
    "matmul bf16": Goal(None, 0.97),
    "matmul int8": Goal(None, 0.85),
    "fused matmul": Goal(None, 1.5),
    "rows": Goal(None, 1.0),
    "attention bf16": Goal(None, 3.0),
    "attention f32": Goal(None, 1.2),
    "gaussian": Goal(None, 3.0),
    "conv": Goal(None, 0.9),
}

SHAPES = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (1000, 1000, 1000),
    (3072, 768, 3072),
    (197, 768, 3072),
    (128, 4096, 4096),
    (128, 1024, 1024),
    (64, 4096, 1024),
    (64, 1024, 4096),
    (32, 4096, 1024),
    (16, 4096, 4096),
    (8, 4096, 1024),
    (1, 4096, 4096),
)


def _matmul(m: int, n: int, k: int, dtype: str) -> Case:
    group = {"f32": "matmul f32", "bf16": "matmul bf16", "i8": "matmul int8"}[dtype]
    return Case(
        f"matmul {dtype} {m}x{n}x{k}", group, "matmul", {"m": m, "n": n, "k": k, "dtype": dtype}
    )


def _attention(dtype: str, s: int, d: int, causal: bool) -> Case:
    name = f"attention {dtype} 1x16x{s}x{d}" + (" causal" if causal else "")
    return Case(
        name,
        f"attention {dtype}",
        "attention",
        {"b": 1, "heads": 16, "sq": s, "d": d, "causal": causal, "dtype": dtype},
    )


def _fused() -> list[Case]:
    small, wide = {"m": 1024, "n": 1024, "k": 1024}, {"m": 512, "n": 4096, "k": 1024}
    gated = {"m": 512, "n": 2048, "k": 1024}
    found = (
        ("matmul+bias+gelu+residual f32 1024x1024x1024", "matmul_bias_act", small),
        ("matmul+bias+gelu+residual f32 512x4096x1024", "matmul_bias_act", wide),
        ("gated mlp f32 512x2048x1024", "gated_mlp", gated),
        ("gated mlp bf16 512x2048x1024", "gated_mlp", gated | {"dtype": "bf16"}),
    )
    return [Case(name, "fused matmul", operator, facts) for name, operator, facts in found]


def _attentions(dtype: str) -> list[Case]:
    return [
        _attention(dtype, s, d, causal)
        for s in (512, 2048)
        for d in (64, 128)
        for causal in (False, True)
    ]


def all_cases() -> list[Case]:
    """Every case, in the order in which they run."""
    square = {"m": 4096, "n": 4096}
    points = {"n": 16384, "d": 18, "expand": True}
    image = {"n": 1, "h": 56, "w": 56, "c": 64, "f": 64, "padding": 1}
    return [
        *(_matmul(*shape, "f32") for shape in SHAPES),
        *(_matmul(n, n, n, dtype) for dtype in ("bf16", "i8") for n in (1024, 2048)),
        *_fused(),
        *(
            Case(f"{name} f32 4096x4096", "rows", name, square)
            for name in ("softmax", "layernorm", "rmsnorm")
        ),
        *_attentions("bf16"),
        *_attentions("f32"),
        Case("gaussian product n=16384 d=18", "gaussian", "gaussian", points),
        Case("conv2d 1x56x56x64 -> 64, 3x3", "conv", "conv2d", image),
    ]


def _plain(text: str) -> str:
    return text.replace("_", " ").strip().lower()


def chosen(text: str) -> list[Case]:
    """The cases whose name or group contains one of the texts between commas; all without any."""
    cases = all_cases()
    found: set[str] = set()
    for part in text.split(","):
        wanted = "" if _plain(part) == "all" else _plain(part)
        names = {c.name for c in cases if wanted in c.name.lower() or wanted in c.group}
        if not names:
            raise SystemExit(f"no case named {part!r}; groups are {', '.join(GOALS)}")
        found |= names
    return [case for case in cases if case.name in found]
