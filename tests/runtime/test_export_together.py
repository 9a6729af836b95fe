"""Any number of exported kernels in one process: of one operator or several, in any order."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from explorer.errors import ExportError
from explorer.exporter import export, find_linker
from ir.kernel import Kernel
from ir.targets.cpu.pool import version
from ir.targets.cpu.standalone import C_FLAGS
from tests.runtime.exported import load
from tests.runtime.fake_backend import C_BODY, kernel

needs_compiler = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
THREADS = 3


def times(factor: int, name: str = "doubled", threads: int = THREADS) -> Kernel:
    """A kernel of one name and shape that multiplies by `factor`, in both its texts."""
    made = kernel("good", threads)
    text = made.text("llvm").replace("fmul float %x, 2.0", f"fmul float %x, {factor}.0")
    body = C_BODY.replace("2.0f", f"{factor}.0f")
    return dataclasses.replace(made, name=name, texts=(("llvm", text), ("c", body)))


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory, code_cache: Path) -> Path:
    """Folders 2, 3 and 5 with `doubled` by that factor, and one with a name of its own."""
    folder = tmp_path_factory.mktemp("exports")
    for factor in (2, 3, 5):
        export(times(factor), {}, folder / str(factor), cache_dir=code_cache)
    export(times(7), {}, folder / "7", name="seven", cache_dir=code_cache)
    return folder


def symbol(folder: Path, name: str = "doubled") -> str:
    return str(json.loads((folder / f"{name}.json").read_text())["symbol"])


_LOAD = """\
import importlib.util, os, sys
import numpy as np
a = np.arange(1000, dtype=np.float32)
modules = {}
for factor in sys.argv[2:]:
    name = "seven" if factor == "7" else "doubled"
    path = f"{sys.argv[1]}/{factor}/{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}{factor}", path)
    modules[factor] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules[factor])
    for known, module in modules.items():
        call = module.seven if known == "7" else module.doubled
        assert np.array_equal(call(a), int(known) * a), (known, "after", factor)
print(len(os.listdir("/proc/self/task")))
"""


@needs_compiler
def test_python_loads_several_in_any_order(exports: Path) -> None:
    """Each runs its own body, on the threads of one pool."""
    for order in ("23", "3752"):
        command = [sys.executable, "-I", "-c", _LOAD, str(exports), *order]
        environment = {"OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=20, env=environment
        )
        assert done.stdout == f"{THREADS}\n", done.stderr


_MAIN = """\
#include <dirent.h>
#include <stdio.h>
#include "2/doubled.h"
#include "3/doubled.h"
#include "5/doubled.h"
#include "7/seven.h"
#include "2/doubled.h"
#ifdef doubled
#error "whose is it?"
#endif
static float a[1000], o[1000];
static int wrong(void (*call)(const float *, float *), float factor) {
  call(a, o);
  for (int i = 0; i < 1000; i++) if (o[i] != factor * a[i]) return 1;
  return 0;
}
int main(void) {
  int entries = 0, bad = 0;
  for (int i = 0; i < 1000; i++) a[i] = (float)i;
  bad = wrong(%s, 2) + wrong(%s, 3) + wrong(%s, 5) + wrong(seven, 7);
  DIR *tasks = opendir("/proc/self/task");
  while (readdir(tasks)) entries++;
  printf("%%d wrong, %%d threads\\n", bad, entries - 2);
  return 0;
}
"""


@needs_compiler
@pytest.mark.parametrize("forms", ["ooo", "ccc", "oco", "sss", "cso"])
def test_c_links_several(forms: str, exports: Path) -> None:
    """Objects, sources and shared libraries, one form for each of three kernels."""
    names = {"o": "doubled.o", "c": "doubled.c", "s": "libdoubled.so"}
    parts = [exports / factor / names[form] for factor, form in zip("235", forms, strict=True)]
    assert build_and_run(parts, exports) == f"0 wrong, {THREADS} threads\n"


def build_and_run(parts: list[Path], exports: Path) -> str:
    """What a program says that calls three kernels and the one with a name of its own."""
    with TemporaryDirectory() as folder:
        main, program = Path(folder) / "main.c", Path(folder) / "program"
        main.write_text(_MAIN % tuple(symbol(exports / factor) for factor in "235"))
        flags = [f for f in C_FLAGS.split() if f not in ("-shared", "-O3")]
        command = [find_linker() or "cc", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
        files = [main, *parts, exports / "7" / "seven.o"]
        subprocess.run([*command, f"-I{exports}", "-o", program, *files], check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=20)
        return done.stdout


@needs_compiler
def test_the_same_kernel_twice_is_one(exports: Path, tmp_path: Path, code_cache: Path) -> None:
    """Two exports of one content, whose names are the same, link."""
    export(times(2), {}, tmp_path / "again", cache_dir=code_cache)
    main = tmp_path / "main.c"
    main.write_text(
        f'#include "2/doubled.h"\nint main(void) {{ return {symbol(exports / "2")} == 0; }}'
    )
    parts = [str(exports / "2" / "doubled.o"), str(tmp_path / "again" / "doubled.c")]
    command = [find_linker() or "cc", f"-I{exports}", "-o", str(tmp_path / "program"), str(main)]
    subprocess.run([*command, *parts, "-pthread"], check=True)


@needs_compiler
def test_only_entry_and_shared_state_are_visible(exports: Path) -> None:
    reader = shutil.which("nm")
    if reader is None:
        pytest.skip("no nm here")
    for file in ("doubled.o", "libdoubled.so"):
        dynamic = ["-D"] if file.endswith(".so") else []
        command = [reader, *dynamic, "--defined-only", "-g", str(exports / "2" / file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = {line.split()[-1] for line in done.stdout.splitlines()}
        state = {name for name in found if name.startswith("tilewright_pool_")}
        assert found - state == {symbol(exports / "2")}
        assert state


def test_the_header_says_what_it_takes(exports: Path) -> None:
    text = (exports / "2" / "doubled.h").read_text()
    assert f"void {symbol(exports / '2')}(const float *A, float *O);" in text
    assert f"#define doubled {symbol(exports / '2')}\n" in text
    assert " *   A: input, f32, 1000\n" in text
    assert 'extern "C" {' in text
    assert "#define seven" not in (exports / "7" / "seven.h").read_text()


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_cpp_takes_the_header(exports: Path, tmp_path: Path) -> None:
    main = tmp_path / "main.cpp"
    main.write_text('#include "2/doubled.h"\nint main() { doubled(nullptr, nullptr); }\n')
    subprocess.run(["c++", "-fsyntax-only", "-Wall", "-Werror", f"-I{exports}", main], check=True)


@pytest.mark.parametrize(
    "name", ["memcpy", "tilewright_launch", "doubled_body", "os", "ARGUMENTS", "_run", "9", "for"]
)
def test_a_name_that_others_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=name):
        export(times(2), {}, tmp_path / "out", name=name)
    assert not list(tmp_path.glob("out/*"))


@needs_compiler
def test_a_kernel_may_be_called_as_a_builtin(tmp_path: Path, code_cache: Path) -> None:
    """What the module itself needs is not overwritten, and C keeps its own function."""
    values = np.arange(1000, dtype=np.float32)
    for name in ("zip", "exp"):
        export(times(2, name, threads=1), {}, tmp_path, cache_dir=code_cache)
        module = load(tmp_path, name)
        assert np.array_equal(getattr(module, name)(values), 2 * values)
        assert not hasattr(module, "unzip")
    assert "#define exp" not in (tmp_path / "exp.h").read_text()


@needs_compiler
def test_versions_of_the_pool_do_not_mix(exports: Path, tmp_path: Path) -> None:
    """A kernel with another version of the pool has threads of its own, and works beside."""
    other = tmp_path / "other.c"
    text = (exports / "3" / "doubled.c").read_text()
    other.write_text(text.replace(f"tilewright_pool_{version()}", "tilewright_pool_0123abcd"))
    done = build_and_run([exports / "2" / "doubled.o", other, exports / "5" / "doubled.c"], exports)
    assert done == f"0 wrong, {2 * THREADS - 1} threads\n"
