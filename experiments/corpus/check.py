"""Every peer against the references of the operators, at small extents on this machine's CPU.

    python experiments/corpus/check.py [TEXT ...]

All cases of the references, and each operator's small setting against the oracle. Ends with 1 if
a peer is wrong.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
from peers import PEERS, of_numpy, outputs_of, plans  # noqa: E402

from ir.catalogue import SMALL, families, settings_of  # noqa: E402
from ir.dtypes import is_float  # noqa: E402
from ir.inputs import random_inputs  # noqa: E402
from ir.oracle import evaluate  # noqa: E402
from ir.program import Program  # noqa: E402
from tests import operators as tables  # noqa: E402
from tests.operators.contract import Case, prepared  # noqa: E402

WRONG = {"f32": 2e-4, "f16": 4e-3, "bf16": 2e-2, "e4m3": 6e-2, "i8": 2e-2}
WRONG_PLACES = 0.02  # share of indices that differ
TABLED = {"fft"}  # read tables, which `known` has as they should be
TIED = {"bf16", "f16", "i8"}  # of whose numbers several are equal: which comes first is open


def cases() -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """(operator, arguments, case of a reference or None for the oracle)."""
    for module in sorted(info.name for info in pkgutil.iter_modules(tables.__path__)):
        if not module.startswith("test_"):
            for case in getattr(import_module(f"{tables.__name__}.{module}"), "CASES", ()):
                yield case.operator, case.arguments, case
    for family in families():
        for operator in family.operators:
            yield operator.name, settings_of(operator)[SMALL], None


def known(name: str, arguments: Mapping[str, Any], case: Case | None) -> tuple[Program, Any, Any]:
    """The program, its inputs, and its outputs as they should be."""
    if case is not None:
        made = prepared(case)
        return made.program, made.inputs, made.wanted
    from ir.registry import load_operator

    program = load_operator(name).build(**arguments)
    inputs = random_inputs(program, np.random.default_rng(7))
    if name == "fft":
        turns = 2 * np.pi * np.arange(arguments["n"]) / arguments["n"]
        inputs |= {"cos": np.cos(turns).astype("f4"), "sin": np.sin(turns).astype("f4")}
    return program, inputs, evaluate(program, inputs)


def error(found: torch.Tensor, wanted: np.ndarray[Any, Any], dtype: str) -> float:
    """The norm of the difference over that of what is wanted; of indices, the share of others."""
    have = found.double().numpy() if found.dtype != torch.bool else found.numpy()
    if not is_float(dtype) and dtype != "i8":
        return float((have != wanted).mean() if have.size else 0)
    with np.errstate(invalid="ignore"):
        gap = np.where(have == wanted, 0.0, have - wanted)
    infinite = ~np.isfinite(wanted)
    scale = float(np.linalg.norm(np.where(infinite, 0.0, wanted)))
    return float(np.linalg.norm(gap) / (scale or 1.0))


def wrong(name: str, arguments: Mapping[str, Any], case: Case | None) -> list[str]:
    program, inputs, wanted = known(name, arguments, case)
    tensors = {spec.name: of_numpy(inputs[spec.name], spec.dtype) for spec in program.inputs}
    shapes = {spec.name: spec.shape for spec in program.outputs}
    types = [spec.dtype for spec in (*program.inputs, *program.outputs)]
    room = max(WRONG.get(dtype, 0.0) for dtype in types)
    places = 1.0 if set(types) & TIED else WRONG_PLACES
    found = []
    for plan in plans(name, tensors, arguments):
        if not plan.checked and (case is not None or name not in TABLED):
            continue
        outputs = outputs_of(plan.run(), shapes)
        for spec in program.outputs:
            off = error(outputs[spec.name], np.asarray(wanted[spec.name]), spec.dtype)
            most = room if is_float(spec.dtype) or spec.dtype == "i8" else places
            if not off <= most:
                found.append(f"{plan.name}: {spec.name} is off by {off:.3g}")
    return found


def main() -> None:
    torch.set_grad_enabled(False)
    bad = count = 0
    for name, arguments, case in cases():
        if name not in PEERS or not all(text in name for text in sys.argv[1:]):
            continue
        try:
            problems = wrong(name, arguments, case)
        except Exception as problem:  # noqa: BLE001 - a peer that ends is told with the others
            problems = [f"{type(problem).__name__}: {problem}".splitlines()[0]]
        count += 1
        bad += bool(problems)
        for problem in problems:
            print(f"{name} {dict(arguments)}: {problem}", flush=True)
    named = {operator.name for family in families() for operator in family.operators}
    print(f"{count} cases, {bad} wrong; no peer: {', '.join(sorted(named - PEERS.keys())) or '-'}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
