"""Which lines of the layout library the CUDA lowering runs.

python experiments/layout_use.py [--samples 3] [--seeds 8] [--lines] [--only NAME] [--workers 2]

Every built-in operator and the programs of the CUDA tests are lowered: seeds and drawn schedules of
their spaces, each engine by itself. A line counts if it stands in a function of `ir/layout`; what
importing, or with --commands `tilewright layout`, runs beside is told apart.
"""

from __future__ import annotations

import argparse
import dis
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LAYOUT = ROOT / "ir" / "layout"
Lines = dict[str, set[int]]


def lines_of(path: Path) -> dict[int, str]:
    """The lines of a file that belong to bodies of functions, and the function's name."""
    found: dict[int, str] = {}

    def walk(code: CodeType, inside: str) -> None:
        is_function = bool(code.co_flags & 0x2) and code.co_name != "__annotate__"
        name = f"{inside}.{code.co_name}" if is_function and inside else code.co_name
        if is_function:
            for _, line in dis.findlinestarts(code):
                if line is not None and (line != code.co_firstlineno or code.co_name[0] == "<"):
                    found.setdefault(line, inside if code.co_name[0] == "<" and inside else name)
        for each in code.co_consts:
            if isinstance(each, CodeType):
                walk(each, name if is_function else "")

    walk(compile(path.read_text(), str(path), "exec"), "")
    return found


class Tracing:
    """Lines of functions under `LAYOUT` that ran since it started. A function all of whose lines
    have run is not watched any more, which makes it some times as fast."""

    def __init__(self) -> None:
        self.ran: Lines = {}
        self.folder = str(LAYOUT)
        self.left: dict[tuple[str, CodeType], set[int]] = {}  # lines that did not run yet

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        key = (code.co_filename, code)  # codes of two files may be equal
        left = self.left.get(key)
        if left is None:
            left = self.left[key] = self._lines(code)
        if not left:
            return None
        seen = self.ran.setdefault(code.co_filename, set())

        def lines(inner: FrameType, what: str, _: Any) -> Any:
            if what == "line":
                seen.add(inner.f_lineno)
                left.discard(inner.f_lineno)
            return lines

        return lines

    def _lines(self, code: CodeType) -> set[int]:
        if not code.co_filename.startswith(self.folder) or not code.co_flags & 0x2:
            return set()
        own = {line for _, line in dis.findlinestarts(code) if line is not None}
        return own if code.co_name[0] == "<" else own - {code.co_firstlineno}

    def start(self) -> None:
        sys.settrace(self)


def programs() -> Iterator[tuple[str, Any]]:
    """Built-in operators in their settings, and what the CUDA tests build."""
    from ir import catalogue
    from ir.errors import TilewrightError
    from tests.targets.cuda_cases import SMALL, built

    for family in catalogue.families():
        for operator in family.operators:
            for name, setting in catalogue.settings_of(operator).items():
                try:
                    yield f"{operator.name}:{name}", operator.build(**setting)
                except TilewrightError as error:
                    print(f"{operator.name}:{name}: {error}", file=sys.stderr)
    for operator_name, arguments in (*SMALL, *PRODUCTS):
        yield f"{operator_name.rpartition('/')[2]}:{arguments}", built(operator_name, arguments)


_TESTS = ROOT / "tests" / "targets"
PRODUCTS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("matmul", {"m": m, "n": 4096, "k": 4096, "dtype": dtype, "ta": ta, "tb": tb})
      for m in (16, 4096) for dtype in ("bf16", "f16", "tf32", "f32", "i8")
      for ta in (False, True) for tb in (False, True)),
    *(("attention", {"b": 2, "heads": 8, "kv_heads": 2, "sq": 1024, "sk": 1024, "d": d,
                     "dtype": dtype, "causal": causal})
      for d in (64, 128, 256) for dtype in ("bf16", "f16") for causal in (False, True)),
    (f"{_TESTS / 'quantised.py'}:w4_grouped", {"m": 64, "n": 128, "groups": 4, "bytes": 32}),
    (f"{_TESTS / 'quantised.py'}:w4_flat", {"m": 64, "n": 128, "k": 256}),
    (f"{_TESTS / 'quantised.py'}:w8_rows", {"m": 64, "n": 128, "k": 256}),
    (f"{_TESTS / 'quantised.py'}:w8_float", {"m": 64, "n": 128, "k": 256}),
    (f"{_TESTS / 'quantised.py'}:normed_rows", {"m": 64, "n": 128, "k": 256}),
    (f"{_TESTS / 'quantised.py'}:gated_w8", {"m": 64, "n": 128, "k": 256}),
    (f"{_TESTS / 'unseen.py'}:router", {"b": 2, "m": 64, "n": 64, "k": 128}),
    (f"{_TESTS / 'unseen.py'}:channels_first", {"b": 2, "n": 128, "c": 64, "f": 64}),
    (f"{_TESTS / 'unseen.py'}:gate_and_up", {"m": 64, "n": 128, "k": 128}),
)  # fmt: skip


def lower(program: Any, seeds: int, samples: int) -> Counter[str]:
    """Lower some schedules of every engine of a program."""
    import numpy as np

    from ir.errors import TilewrightError
    from tests.targets.cuda_cases import BACKEND, HARDWARE

    done: Counter[str] = Counter()
    try:
        whole = BACKEND.space(program, HARDWARE)
    except TilewrightError:
        return Counter(refused=1)
    engines = whole.decision("engine").domain if "engine" in whole.names else ("",)
    for engine in engines:
        space = whole.pin(engine=engine) if engine else whole
        rng = np.random.default_rng(0)
        try:
            rows = space.seed_rows(rng)
            picked = rng.permutation(len(rows))[:seeds]
            drawn = [*rows[picked], *space.sample(rng, samples)]
        except TilewrightError:
            done["no rows"] += 1
            continue
        for row in drawn:
            try:
                BACKEND.lower(program, space.schedule(row), HARDWARE)
                done["lowered"] += 1
            except TilewrightError as error:
                done[f"failed: {error}"] += 1
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
                done[f"crashed: {error!r}"] += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--lines", action="store_true", help="list what did not run")
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--workers", type=int, default=1, help="processes that share the programs")
    parser.add_argument("--commands", action="store_true", help="what `tilewright layout` runs too")
    given = parser.parse_args()
    imported = Tracing()
    imported.start()
    import ir.targets.cuda.backend  # noqa: F401
    import tests.targets.cuda_cases  # noqa: F401

    sys.settrace(None)
    ran, total = Lines(), Counter[str]()
    cases = [case for case in programs() if given.only in case[0]]
    random.Random(0).shuffle(cases)
    parts = [cases[number :: given.workers] for number in range(given.workers)]
    tasks = [(part, given.seeds, given.samples, given.seconds) for part in parts]
    with get_context("fork").Pool(given.workers) as pool:
        for part_ran, part_total in pool.starmap(traced, tasks, chunksize=1):
            total += part_total
            for file, lines in part_ran.items():
                ran.setdefault(file, set()).update(lines)
    beside = commands() if given.commands else imported.ran
    report(beside, ran, given.lines)
    print(dict(total))


def traced(
    cases: list[tuple[str, Any]], seeds: int, samples: int, seconds: float
) -> tuple[Lines, Counter[str]]:
    """The lines that lowering these programs runs, and what came of it; in one process."""
    tracing, total, began = Tracing(), Counter[str](), time.monotonic()
    for name, program in cases:
        if time.monotonic() - began > seconds:
            break
        tracing.start()
        done = lower(program, seeds, samples)
        sys.settrace(None)
        total += done
        total["programs"] += 1
        ran = sum(map(len, tracing.ran.values()))
        print(f"{time.monotonic() - began:6.0f} s {ran:5} {name} {dict(done)}", file=sys.stderr)
    return tracing.ran, total


def commands() -> Lines:
    """What the commands on layouts run: tables, pictures, explained blocks of every operator."""
    from explorer.layouts import draw
    from ir import catalogue
    from ir.layout.layout import Layout
    from ir.layout.swizzle import parse

    tracing = Tracing()
    for family in catalogue.families():
        for operator in family.operators:
            settings = catalogue.settings_of(operator).values()
            for setting in (*settings, *EXPLAINED.get(operator.name, ())):
                program = operator.build(**setting)
                tracing.start()
                explained(program)
                sys.settrace(None)
    tracing.start()
    for text in ("(4,8):(8,1)", "S(3,4,3) o 0 o (8,64):(64,1)", "3:2"):
        print(draw.table(parse(text))[:1], draw.memory_svg(parse(text), 16)[:1], file=sys.stderr)
    draw.thread_svg(Layout.parse("((4,8),(2,2)):((32,1),(16,8))"), (16, 8))
    sys.settrace(None)
    return tracing.ran


EXPLAINED: dict[str, tuple[dict[str, Any], ...]] = {
    "matmul": tuple({"m": 512, "n": 512, "k": 512, "dtype": d} for d in ("bf16", "i8", "tf32")),
    "attention": tuple(
        {"b": 1, "heads": 2, "sq": 128, "d": 64, "dtype": d} for d in ("bf16", "f16", "e4m3")
    ),
}


def explained(program: Any) -> None:
    """The explained solutions of a program's block in every form that the command offers."""
    from explorer.layouts.explain import ALTERNATIVES, explain
    from ir.blocks import Scheduling, from_program
    from ir.errors import TilewrightError
    from ir.layout.synthesis.search import synthesise

    for family, epilogue, threads in product(("mma", "wgmma"), ("direct", "staged"), (128, 256)):
        try:
            asked = from_program(program, Scheduling({}, threads, family, epilogue))
            for solution in synthesise(asked, ALTERNATIVES):
                explain(solution)
        except TilewrightError:
            continue


def report(imported: Lines, lowered: Lines, listed: bool) -> None:
    every = on_import = run = 0
    for path in sorted(LAYOUT.rglob("*.py")):
        lines, here = lines_of(path), lowered.get(str(path), set())
        hit = lines.keys() & here
        more = (lines.keys() & imported.get(str(path), set())) - hit
        every, run, on_import = every + len(lines), run + len(hit), on_import + len(more)
        if lines:
            print(f"{path.relative_to(LAYOUT)!s:28} {len(hit):4} + {len(more):3} of {len(lines):4}")
        if listed:
            left: dict[str, list[int]] = {}
            for line in sorted(lines.keys() - hit - more):
                left.setdefault(lines[line], []).append(line)
            sizes = Counter(lines.values())
            for name, which in left.items():
                part = "whole" if len(which) == sizes[name] else str(which)
                print(f"    {name} {len(which)} {part}")
    print(f"{run} of {every} lines of functions run: {run / every:.1%}; "
          f"with what stands beside {(run + on_import) / every:.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
