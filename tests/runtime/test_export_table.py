"""Kernels of several extents in one library: from Python, from C, what is refused, what is told."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer.errors import ExportError
from explorer.exporter import export_table, find_linker
from explorer.exporters.base import TableFacts
from ir import Graph, operator
from ir.kernel import Kernel, KernelTable
from ir.targets.cpu.joining import joined_c
from ir.targets.cpu.standalone import C_FLAGS
from tests.runtime.exported import load

needs_compiler = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
ROWS = (7, 24, 100)
N, K = 16, 40


def seed_kernel(what: Any, **arguments: Any) -> Kernel:
    workload = explorer.load(what, threads=2, **arguments)
    space = workload.space()
    return workload.kernel(space.schedule(space.seed_rows(np.random.default_rng(0))[0]))


def table_of(what: Any, varying: tuple[str, ...], points: Any, **fixed: int) -> KernelTable:
    rows = [
        (point, seed_kernel(what, **fixed, **dict(zip(varying, point, strict=True))))
        for point in points
    ]
    return KernelTable(rows[0][1].name, varying, tuple(rows))


def facts(table: KernelTable) -> TableFacts:
    return TableFacts({"operator": table.name}, tuple({} for _ in table.rows))


@pytest.fixture(scope="module")
def products() -> KernelTable:
    return table_of("matmul", ("m",), [(m,) for m in ROWS[::-1]], n=N, k=K)


@pytest.fixture(scope="module")
def folder(
    products: KernelTable, tmp_path_factory: pytest.TempPathFactory, code_cache: Path
) -> Path:
    """Products of three heights."""
    place = tmp_path_factory.mktemp("table")
    export_table(products, facts(products), place, cache_dir=code_cache)
    return place


def operands(m: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(m)
    return rng.standard_normal((m, K), np.float32), rng.standard_normal((K, N), np.float32)


@needs_compiler
def test_the_function_chooses_by_shapes(folder: Path) -> None:
    module = load(folder, "matmul")
    for m in (*ROWS, *ROWS):
        a, b = operands(m)
        room = np.empty((m, N), np.float32)
        assert module.matmul(a, b, room) is room
        np.testing.assert_allclose(room, a @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(module.matmul(a.tolist(), b), a @ b, rtol=1e-4, atol=1e-4)
    assert module.workspace(24) == sum(
        -(-a.bytes // 64) * 64 for a in seed_kernel("matmul", m=24, n=N, k=K).arguments
        if a.role == "workspace"
    )  # fmt: skip
    assert module.workspace(25) is None


@needs_compiler
def test_shapes_without_a_kernel_are_refused_in_a_line(folder: Path) -> None:
    module = load(folder, "matmul")
    a, b = operands(9)
    with pytest.raises(ValueError, match=r"no kernel for A \(9, 40\), B \(40, 16\); there are ker"):
        module.matmul(a, b)
    with pytest.raises(ValueError, match=r"m=7; m=24; m=100$"):
        module.matmul(a.T, b)
    with pytest.raises(ValueError, match=r"C has shape \(9, 16\); it must have shape \(24, 16\)"):
        module.matmul(*operands(24), np.empty((9, N), np.float32))
    with pytest.raises(TypeError, match="A must be float32"):
        module.matmul(operands(24)[0].astype(np.float64), b)


@needs_compiler
def test_threads_may_call_it_at_once(folder: Path) -> None:
    module, wrong = load(folder, "matmul"), []

    def call(m: int) -> None:
        a, b = operands(m)
        for _ in range(50):
            if not np.allclose(module.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4):
                wrong.append(m)

    threads = [threading.Thread(target=call, args=(m,)) for m in (*ROWS, *ROWS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_MAIN = """\
#include <stdio.h>
#include <stdlib.h>
#include "matmul.h"
static float a[100 * 40], b[40 * 16], c[101 * 16], d[101 * 16];
static int wrong(int m, const float *got) {
  for (int i = 0; i < m; i++) for (int j = 0; j < 16; j++) {
    double sum = 0;
    for (int k = 0; k < 40; k++) sum += (double)a[i * 40 + k] * b[k * 16 + j];
    double off = got[i * 16 + j] - sum;
    if (off > 1e-3 || off < -1e-3) return 1;
  }
  return got[m * 16] != -1;
}
int main(void) {
  int bad = 0;
  for (int i = 0; i < 4000; i++) a[i] = (float)(i % 7) - 3;
  for (int i = 0; i < 640; i++) b[i] = (float)(i % 5) - 2;
  for (int m = 1; m <= 100; m++) {
    int known = m == 7 || m == 24 || m == 100;
    for (int i = 0; i < 101 * 16; i++) c[i] = d[i] = -1;
    int64_t bytes = matmul_workspace(m);
    void *room = aligned_alloc(64, (size_t)(bytes > 0 ? bytes : 64));
    if (matmul(m, a, b, c) != !known || matmul_with(m, a, b, d, room) != !known) bad++;
    if ((bytes < 0) == known) bad++;
    if (known ? wrong(m, c) + wrong(m, d) : c[0] != -1 || d[0] != -1) bad++;
    free(room);
  }
  printf("%d wrong\\n", bad);
  return 0;
}
"""


@needs_compiler
@pytest.mark.parametrize("form", ["matmul.c", "matmul.o"])
def test_c_calls_it_with_the_extents(form: str, folder: Path, tmp_path: Path) -> None:
    main, program = tmp_path / "main.c", tmp_path / "program"
    main.write_text(_MAIN)
    flags = [f for f in C_FLAGS.split() if f not in ("-shared", "-O3")]
    command = [find_linker() or "cc", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    command += [f"-I{folder}", "-o", str(program), str(main), str(folder / form)]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "0 wrong\n"


@needs_compiler
def test_two_arguments_may_vary(tmp_path: Path, code_cache: Path) -> None:
    points = [(m, n) for m in (3, 8) for n in (16, 48)]
    table = table_of("softmax", ("m", "n"), points)
    export_table(table, facts(table), tmp_path, name="soft", cache_dir=code_cache)
    module = load(tmp_path, "soft")
    for m, n in points:
        x = np.random.default_rng(n).standard_normal((m, n), np.float32)
        found = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(module.soft(x), found, atol=1e-5)
    assert (
        "int soft(int64_t m, int64_t n, const float *X, float *Y);"
        in (tmp_path / "soft.h").read_text()
    )


def test_the_manifest_has_the_table(products: KernelTable, folder: Path) -> None:
    manifest = json.loads((folder / "matmul.json").read_text())
    assert manifest["varying"] == ["m"]
    assert [row["extents"] for row in manifest["table"]] == [{"m": m} for m in ROWS]
    assert manifest["table"][0]["arguments"][0]["shape"] == [7, K]
    assert manifest["symbol"] == products.symbol
    assert set(manifest["sha256"]) >= {"matmul.c", "matmul.h", "matmul.o", "matmul.py"}
    header = (folder / "matmul.h").read_text()
    assert "A: input, f32, (7 | 24 | 100) x 40" in header
    assert f"#define matmul_with {products.symbol}_with" in header


@operator
def first_of(g: Graph, m: int, n: int) -> None:
    """The inputs do not tell n."""
    rows, columns = g.axes(m=m, n=n)
    g.output("Y", g.input("X", (rows,), "f32") + g.coordinate(columns), "f32")


def test_kernels_that_arrays_do_not_tell_apart_are_refused(tmp_path: Path) -> None:
    table = table_of(first_of, ("n",), [(4,), (8,)], m=4)
    with pytest.raises(ExportError, match="inputs have the same shapes with n=4 and with n=8"):
        export_table(table, facts(table), tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("name", ["KERNELS", "workspace", "memcpy", "matmul_body", "for"])
def test_names_that_others_have_are_refused(
    name: str, products: KernelTable, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=name):
        export_table(products, facts(products), tmp_path / "out", name=name)
    assert not list(tmp_path.glob("out/*"))


def test_a_table_says_which_is_which(products: KernelTable) -> None:
    with pytest.raises(ValueError, match="the same extents"):
        dataclasses.replace(products, rows=(products.rows[0], products.rows[0]))
    with pytest.raises(ValueError, match="a value for every argument"):
        dataclasses.replace(products, varying=("m", "n"))


def test_helpers_that_differ_under_one_name_are_told_apart(products: KernelTable) -> None:
    """As a later helper that calls one of them is, too."""

    def kernel(number: int, factor: str) -> Kernel:
        text = (
            f"static inline float one(float x) {{\n  return {factor} * x;\n}}\n\n"
            "static inline float two(float x) {\n  return one(x) + one(x);\n}\n\n"
            f"/* body_{number}: all. */\nstatic void body_{number}(void) {{\n  two(1);\n}}\n"
        )
        return dataclasses.replace(products.first, entry=f"body_{number}", texts=(("c", text),))

    text = joined_c([kernel(0, "2"), kernel(1, "3"), kernel(2, "2")])
    assert text.count("float one(") == text.count("float two(") == 1
    assert "float one_1(float x) {\n  return 3 * x;" in text
    assert "float two_1(float x) {\n  return one_1(x) + one_1(x);" in text
    assert "body_1(void) {\n  two_1(1);" in text
    assert "body_2(void) {\n  two(1);" in text
