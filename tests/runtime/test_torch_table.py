"""Packages for torch with kernels of several extents: what is written, what torch makes of it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer import cli
from explorer.errors import NothingValid
from explorer.exporters.torch_native import calls_text
from explorer.exporters.torch_package import Part, package_text
from explorer.shapes.family import Family
from explorer.torch_export import Backward, export_package, export_package_family
from ir.kernel import KernelTable
from tests.runtime import cuda_kernels
from tests.runtime.test_torch_package import note, sum_and_product

HEIGHTS = (16, 24, 96)
GIVEN: dict[str, Any] = {"n": 12, "k": 40}
GRADIENTS = (
    Backward("matmul", {"n": 40, "k": 12, "tb": True}, {"A": "dC", "C": "dA"}),
    Backward("matmul", {"m": 40, "k": "m", "ta": True}, {"B": "dC", "C": "dB"}),
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products of three heights with their gradients, and softmax of six shapes."""
    folder = tmp_path_factory.mktemp("tables")
    path = folder / "records.db"
    for m in HEIGHTS:
        linear = explorer.load("matmul", m=m, **GIVEN)
        for workload in (linear, *(one.workload(linear) for one in GRADIENTS)):
            note(path, workload)
    given: dict[str, Any] = {"m": list(HEIGHTS), **GIVEN}
    given |= {"store": path, "backward": GRADIENTS}
    explorer.export_torch("matmul", folder / "three_linears", **given)
    shapes = Family.of("softmax", {"m": [2, 3, 5], "n": [8, 33]})
    for point in shapes.points():
        note(path, shapes.workload(point))
    export_package_family(shapes, folder / "soft_of_six", store=path, name="soft")
    return folder


def test_a_package_has_a_library_for_each_operator(packages: Path) -> None:
    for folder in ("forward", "dA", "dB"):
        names = {path.name for path in (packages / "three_linears" / folder).iterdir()}
        assert names >= {"libmatmul.so", "matmul.py", "matmul.json", "matmul.c"}
    text = (packages / "three_linears/__init__.py").read_text()
    assert "((16,), ((16, 40), (40, 12)), ((16, 12),))," in text
    assert "((16,), ((40, 16), (16, 12)), ((40, 12),))," in text or "((16, 40), (16, 12))" in text
    assert "A: input, float32, 16|24|96 x 40" in text
    assert "def soft(X):" in (packages / "soft_of_six/__init__.py").read_text()


def test_an_argument_may_be_one_of_the_operators_own() -> None:
    found = Backward.parse("matmul m=40 k=m ta=true B=dC C=dB")
    for m in HEIGHTS:
        workload = found.workload(explorer.load("matmul", m=m, **GIVEN))
        assert dict(workload.arguments)["k"] == m


def test_the_command_writes_a_package_of_several(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "softmax", "m=2,3", "n=8", "--torch", "--out", str(tmp_path / "soft")]
    assert cli.invoke([*words, "--records", str(packages / "records.db")]) == cli.EXIT_DONE
    assert f"wrote {tmp_path / 'soft' / '__init__.py'}" in capsys.readouterr().out
    words[2] = "m=2,7"
    assert cli.invoke([*words, "--records", str(packages / "records.db")]) != cli.EXIT_DONE
    assert "no kernel for m=7: softmax" in capsys.readouterr().err


def test_a_derivative_without_records_is_named(packages: Path, tmp_path: Path) -> None:
    family = Family.of("softmax", {"m": [2, 3], "n": 8})
    backward = [Backward("softmax", {"n": 9}, {"X": "dY", "Y": "dX"})]
    with pytest.raises(explorer.errors.ExportError, match=r"softmax: X is f32\[2, 9\], dY"):
        export_package_family(family, tmp_path / "soft", backward=backward)
    with pytest.raises(NothingValid, match="no kernel for m=2, m=3: softmax"):
        export_package_family(family, tmp_path / "soft", store=tmp_path / "none.db")
    assert not list(tmp_path.iterdir())


# --- with torch ---------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed; no part of it is needed")


@pytest.fixture
def linears(packages: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(packages))
    return importlib.import_module("three_linears")


@pytest.fixture
def soft(packages: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(packages))
    return importlib.import_module("soft_of_six")


def test_kernels_are_chosen_by_shapes(linears: Any, soft: Any, torch: Any) -> None:
    b = torch.randn(40, 12, requires_grad=True)
    for m in (*HEIGHTS, *HEIGHTS):
        a = torch.randn(m, 40)
        torch.testing.assert_close(linears.matmul(a, b.detach()), a @ b, rtol=1e-4, atol=1e-4)
        a.requires_grad_()
        weights = torch.randn(m, 12)
        found = torch.autograd.grad((linears.matmul(a, b) * weights).sum(), (a, b))
        wanted = torch.autograd.grad((a @ b * weights).sum(), (a, b))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    for shape in ((2, 8), (3, 33), (5, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(soft.soft(x), x.softmax(1))


def test_shapes_without_a_kernel_are_one_line(linears: Any, torch: Any) -> None:
    b = torch.randn(40, 12)
    message = (
        r"^matmul: no kernel for A \(17, 40\), B \(40, 12\); there are kernels for "
        r"\(16, 40\), \(40, 12\); \(24, 40\), \(40, 12\); \(96, 40\), \(40, 12\)$"
    )
    for a in (torch.randn(17, 40), torch.randn(17, 40, requires_grad=True)):
        with pytest.raises(ValueError, match=message):
            linears.matmul(a, b)
    with pytest.raises(TypeError, match=r"B is of torch\.float64; it must be torch\.float32"):
        linears.matmul(torch.randn(16, 40), b.double())
    with pytest.raises(ValueError, match=r"A has strides \(1, 16\)"):
        linears.matmul(torch.randn(40, 16).t(), b)


def test_torch_finds_nothing_wrong(linears: Any, soft: Any, torch: Any) -> None:
    """Schema, fake, autograd, tracing with shapes that are known and with any."""
    for module in (linears, soft):
        for number, op in enumerate([*module._ops, module._plain]):
            row = module.KERNELS[number % len(module._ops)]
            for _, shapes, _ in row[7][:2]:
                tensors = [torch.randn(shape) for shape in shapes]
                torch.library.opcheck(op, tuple(tensors))
                if op is module._ops[0] and module.DERIVATIVES:
                    torch.library.opcheck(op, tuple(t.requires_grad_() for t in tensors))


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.long)]
)
def test_one_graph_serves_all_extents(linears: Any, torch: Any, backend: str) -> None:
    graphs = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    def layer(a: Any, b: Any) -> Any:
        return torch.relu(linears.matmul(a * 2, b)).sum()

    compiled = torch.compile(layer, backend=counted, fullgraph=True, dynamic=True)
    b = torch.randn(40, 12, requires_grad=True)
    for m in HEIGHTS:
        a = torch.randn(m, 40, requires_grad=True)
        torch.testing.assert_close(compiled(a, b), layer(a, b), rtol=1e-4, atol=1e-3)
        found = torch.autograd.grad(compiled(a, b), (a, b))
        wanted = torch.autograd.grad(torch.relu(a * 2 @ b).sum(), (a, b))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
    assert len(graphs) == 1
    with pytest.raises(Exception, match=r"no kernel for A \(17, 40\)"):
        compiled(torch.randn(17, 40), b)
    with pytest.raises(Exception, match=r"no kernel for A"):
        compiled(torch.randn(16, 41), torch.randn(41, 12))


def test_programs_are_exported_with_an_extent_that_varies(linears: Any, torch: Any) -> None:
    class Layer(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any) -> Any:
            return linears.matmul(a, b).relu()

    m = torch.export.Dim("m", min=2, max=4096)
    given = (torch.randn(24, 40), torch.randn(40, 12))
    program = torch.export.export(Layer(), given, dynamic_shapes={"a": {0: m}, "b": None})
    for rows in HEIGHTS:
        a = torch.randn(rows, 40)
        found = program.module()(a, given[1])
        torch.testing.assert_close(found, (a @ given[1]).relu(), rtol=1e-4, atol=1e-4)


AHEAD = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import three_linears as linears
class Layer(torch.nn.Module):
    def forward(self, a, b):
        return linears.matmul(a, b).relu()
m = torch.export.Dim("m", min=2, max=4096)
given = torch.randn(24, 40), torch.randn(40, 12)
program = torch.export.export(Layer(), given, dynamic_shapes={"a": {0: m}, "b": None})
path = torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
run = torch._inductor.aoti_load_package(path)
for rows in (16, 24, 96):
    a = torch.randn(rows, 40)
    torch.testing.assert_close(run(a, given[1]), (a @ given[1]).relu(), rtol=1e-4, atol=1e-4)
print("good")
"""


@pytest.mark.long
def test_programs_are_compiled_ahead_of_time(packages: Path, torch: Any, tmp_path: Path) -> None:
    """A package of AOTInductor, loaded in a process of Python that has imported ours."""
    assert said(AHEAD, packages, tmp_path / "layer.pt2").endswith("good\n")


def test_whoever_looks_on_sees_the_operator(linears: Any, torch: Any) -> None:
    """Modes, transforms and profilers see it; nobody else pays for them."""
    a, b = torch.randn(16, 40), torch.randn(40, 12)
    seen: list[Any] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), named: Any = None) -> Any:
            seen.append(op)
            return op(*args, **(named or {}))

    with Watch():
        linears.matmul(a, b)
    assert seen == [linears._plain]
    assert not linears._is_watched()
    with torch.device("meta"):
        assert linears._is_watched()
    assert linears.matmul(a.to("meta"), b.to("meta")).device.type == "meta"
    with torch.profiler.profile() as profile:
        linears.matmul(a, b)
    assert any("tilewright::" in event.key for event in profile.key_averages())
    many = torch.randn(3, 16, 40)
    found = torch.func.vmap(lambda one: linears.matmul(one, b))(many)
    torch.testing.assert_close(found, many @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="matmul: there is no derivative in forward mode"):
        torch.func.jvp(lambda x: linears.matmul(x, b), (a,), (a,))


BUILT = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import built
assert built._BUILT
b = torch.randn(40, 12, requires_grad=True)
for m in (16, 24, 96):
    a = torch.randn(m, 40, requires_grad=True)
    torch.testing.assert_close(built.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(built.matmul(a.detach(), b.detach()), a @ b, rtol=1e-4, atol=1e-4)
    found = torch.autograd.grad(built.matmul(a, b).sin().sum(), (a, b))
    wanted = torch.autograd.grad((a @ b).sin().sum(), (a, b))
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.library.opcheck(built._ops[0], (a, b))
    torch.library.opcheck(built._plain, (a.detach(), b.detach()))
compiled = torch.compile(built.matmul, fullgraph=True, dynamic=True, backend="aot_eager")
for m in (16, 24, 96):
    a = torch.randn(m, 40)
    torch.testing.assert_close(compiled(a, b.detach()), a @ b, rtol=1e-4, atol=1e-4)
a, c, seen = torch.randn(16, 40), b.detach(), []
assert built._quick(a, b) is None and built._quick(a) is None and built._quick(a, 2) is None
assert built._quick(a, c) is not None
with torch.no_grad():
    assert built._quick(a, torch.nn.Parameter(b)) is not None
class Watch(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), named=None):
        seen.append(op)
        return op(*args, **(named or {}))
with Watch():
    built.matmul(a, c)
assert seen == [built._plain], seen
with torch.device("meta"):
    assert built._quick(a, c) is None
assert built.matmul(a.to("meta"), c.to("meta")).device.type == "meta"
with torch.profiler.profile() as profile:
    built.matmul(a, c)
assert any("tilewright::" in event.key for event in profile.key_averages())
many = torch.randn(3, 16, 40)
found = torch.func.vmap(lambda one: built.matmul(one, c))(many)
torch.testing.assert_close(found, many @ c, rtol=1e-4, atol=1e-4)
try:
    torch.func.jvp(lambda x: built.matmul(x, c), (a,), (a,))
except NotImplementedError as error:
    assert "there is no derivative in forward mode" in str(error)
else:
    raise AssertionError("a tangent was dropped")
for a, kind, said in (
    (torch.randn(17, 40), ValueError, "matmul: no kernel for A [17, 40], B [40, 12]"),
    (torch.randn(16, 40).double(), TypeError, "matmul: A is of Double; it must be of Float"),
    (torch.randn(40, 16).t(), ValueError, "matmul: A has strides [1, 16]; pass it .contiguous()"),
    (torch.randn(16), ValueError, "matmul: A has shape [16]; it must have 2 dimensions"),
):
    try:
        built.matmul(a, b.detach())
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
print("good")
"""

WITHOUT = """
import sys, torch
torch.ops.load_library(sys.argv[1])
run = torch._inductor.aoti_load_package(sys.argv[2])
b = torch.randn(40, 12)
for rows in (16, 24, 96):
    a = torch.randn(rows, 40)
    torch.testing.assert_close(run(a, b), (a @ b).relu(), rtol=1e-4, atol=1e-4)
print("good")
"""

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")


@pytest.fixture(scope="module")
def built(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package whose operators are in C++."""
    pytest.importorskip("torch", reason="torch is not installed; no part of it is needed")
    folder = tmp_path_factory.mktemp("native")
    shutil.copytree(packages / "three_linears", folder / "built")
    subprocess.run([sys.executable, folder / "built/build.py"], check=True)
    return folder


def said(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr[-2000:]


@needs_compiler
def test_operators_in_c_plus_plus_are_the_same(built: Path) -> None:
    assert said(BUILT, built) == "good\n"


@needs_compiler
@pytest.mark.long
def test_a_program_compiled_ahead_of_time_needs_no_python_of_the_package(
    packages: Path, built: Path, tmp_path: Path
) -> None:
    assert said(AHEAD, packages, tmp_path / "layer.pt2").endswith("good\n")
    assert said(WITHOUT, built / "built/libops.so", tmp_path / "layer.pt2") == "good\n"


@needs_compiler
def test_what_was_built_for_another_torch_is_left_alone(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "built", tmp_path / "other")
    (tmp_path / "other/built.txt").write_text("0.1")
    program = "import sys; sys.path.insert(0, sys.argv[1]); import other; print(other._quick)"
    assert said(f"{program}; assert not other._BUILT", tmp_path) == "None\n"


@needs_compiler
@pytest.mark.long
def test_an_export_builds_on_request(tmp_path: Path, torch: Any) -> None:
    both = explorer.load(sum_and_product, m=33)
    note(tmp_path / "records.db", both)
    export_package(both, tmp_path / "both", store=tmp_path / "records.db", build=True)
    program = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import both
x, y = torch.randn(33), torch.randn(33)
for found in (both._quick(x, y), both.sum_and_product(x, y)):
    torch.testing.assert_close(found, (x + y, x * y))
print("good")
"""
    assert said(program, tmp_path) == "good\n"


def test_what_cannot_be_built_is_said(
    packages: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    torch: Any,
) -> None:
    monkeypatch.setenv("CXX", "false")
    words = ["export", "softmax", "m=2", "n=8", "--build", "--out", str(tmp_path / "soft")]
    words += ["--records", str(packages / "records.db")]
    for more, said in (([], "give --torch too"), (["--torch"], "cannot be built in C++: build.py")):
        assert cli.invoke([*words, *more]) != cli.EXIT_DONE
        assert said in capsys.readouterr().err
    assert not list((tmp_path / "soft").iterdir())


def test_results_for_python_are_those_of_the_operator(packages: Path) -> None:
    text = (packages / "three_linears/calls.cpp").read_text()
    assert ".typed<at::Tensor(const at::Tensor&, const at::Tensor&)>()" in text
    assert "return THPVariable_Wrap(std::move(found));" in text
    three = KernelTable("added", ("n",), ((((8,), cuda_kernels.added(8))),))
    assert "count == 2 &&" in calls_text("added_plain", three)


def test_the_file_in_c_plus_plus_has_the_table(packages: Path) -> None:
    text = (packages / "three_linears/ops.cpp").read_text()
    assert "    {16, 40, 40, 12, 16, 16, 12},\n    {24, 40, 40, 12, 24, 24, 12},\n" in text
    assert text.count("library.def(") == text.count("library.impl(") == 4
    assert "(Tensor A, Tensor B) -> Tensor" in text


def test_kernels_of_a_gpu_are_one_module(torch: Any) -> None:
    additions = KernelTable("added", ("n",), tuple(((n,), cuda_kernels.added(n)) for n in (8, 16)))
    text = package_text(Part(additions.first, "forward", "", additions), [], {})
    assert 'DEVICE = "cuda"' in text
    assert "((8,), ((8,), (8,)), ((8,),))," in text
