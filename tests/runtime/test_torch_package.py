"""Packages for torch: what is written, what is refused; with torch, what their operators do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import cli
from explorer.errors import ExportError, NothingValid
from explorer.exporters.torch_package import Derivative, Part, package_text
from explorer.outcome import Outcome
from explorer.recall import FINAL, to_record
from explorer.torch_export import Backward, export_package
from explorer.workload import Workload
from ir import Graph, UsageError, load_operator, operator
from ir.kernel import Argument, Kernel
from ir.schedule import Schedule
from records import Store
from tests.docs.pages import blocks

LINEAR: dict[str, Any] = {"m": 24, "n": 16, "k": 40}
GRADIENTS = (
    Backward("matmul", {"m": 24, "n": 40, "k": 16, "tb": True}, {"A": "dC", "C": "dA"}),
    Backward("matmul", {"m": 40, "n": 16, "k": 24, "ta": True}, {"B": "dC", "C": "dB"}),
)
HEADS: dict[str, Any] = {"b": 1, "heads": 2, "sq": 16, "d": 8}


def seed(workload: Workload) -> Schedule:
    space = workload.space()
    return space.schedule(space.seed_rows(np.random.default_rng(0))[0])


def note(path: Path, workload: Workload) -> None:
    """Record a seed as if it had been searched for."""
    with Store(path) as store:
        store.add(to_record(workload, seed(workload), Outcome("ok", 1e-3), "job", FINAL))


@operator
def sum_and_product(g: Graph, m: int, dtype: str = "f32") -> None:
    """Two outputs, declared between the inputs."""
    rows = g.axis("m", m)
    x = g.input("X", (rows,), dtype)
    y = g.input("self", (rows,), dtype)
    g.output("S", x + y, dtype)
    g.output("P", x * y, dtype)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages, and their records beside it."""
    folder = tmp_path_factory.mktemp("packages")
    path = folder / "records.db"
    linear = explorer.load("matmul", **LINEAR)
    attention = explorer.load("attention_lse", **HEADS)
    both = explorer.load(sum_and_product, m=33)
    softmax = explorer.load("softmax", m=5, n=70)
    backward = Backward("attention_backward")
    others = [one.workload(linear) for one in GRADIENTS] + [backward.workload(attention)]
    for workload in (linear, attention, both, softmax, *others):
        note(path, workload)
    explorer.export_torch("matmul", folder / "linear", store=path, backward=GRADIENTS, **LINEAR)
    export_package(attention, folder / "flash", backward=[backward], store=path)
    export_package(both, folder / "both", store=path)
    export_package(softmax, folder / "soft", store=path, name="softmax_of_70")
    return folder


def test_a_package_holds_a_kernel_for_each_gradient(packages: Path) -> None:
    assert {path.name for path in (packages / "linear").iterdir()} == {
        "__init__.py", "build.py", "calls.cpp", "ops.cpp", "forward", "dA", "dB",
    }  # fmt: skip
    for folder in ("forward", "dA", "dB"):
        names = {path.name for path in (packages / "linear" / folder).iterdir()}
        assert names >= {"libmatmul.so", "matmul.py", "matmul.json", "matmul.c"}
    text = (packages / "linear/__init__.py").read_text()
    assert "DERIVATIVES = ((1, ('dC', 'B'), ('dA',)), (2, ('A', 'dC'), ('dB',)))" in text
    assert (packages / "flash/dQ_dK_dV/libattention_backward.so").exists()
    assert "def softmax_of_70(X):" in (packages / "soft/__init__.py").read_text()
    assert "tilewright" not in text.replace("torch.ops.tilewright", "").replace(
        '_NAMESPACE = "tilewright"', ""
    )


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (GRADIENTS[:1] * 2, "dA is given by two derivatives; leave one out"),
        ([Backward("matmul", LINEAR, {"Q": "dC"})], "matmul has no tensor 'Q'"),
        ([Backward("matmul", LINEAR)], "matmul: output C is no tensor of matmul: say which with "
         "C=NAME, one of dA, dB"),
        ([Backward("matmul", LINEAR, {"A": "dC", "C": "dA"})],
         r"matmul: A is f32\[24, 40\], dC of matmul is f32\[24, 16\]"),
    ],
)  # fmt: skip
def test_derivatives_that_do_not_fit_are_refused(
    tmp_path: Path, backward: list[Backward], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        export_package(explorer.load("matmul", **LINEAR), tmp_path / "linear", backward=backward)
    assert not list(tmp_path.iterdir())


def test_what_torch_has_no_words_for_is_refused(tmp_path: Path) -> None:
    @operator
    def ramp(g: Graph, m: int) -> None:
        g.output("Y", g.coordinate(g.axis("m", m)), "i32")

    with pytest.raises(ExportError, match="ramp: an operator of torch takes a tensor at least"):
        export_package(explorer.load(ramp, m=4), tmp_path / "ramp")
    softmax = explorer.load("softmax", m=4, n=4)
    with pytest.raises(ExportError, match="a package's folder has a Python name"):
        export_package(softmax, tmp_path / "soft-max")
    with pytest.raises(ExportError, match="'KERNELS' is a name inside the exported package"):
        export_package(softmax, tmp_path / "soft", name="KERNELS")
    with pytest.raises(NothingValid):
        export_package(softmax, tmp_path / "soft", store=tmp_path / "none.db")
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_without_a_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.exporters.library.find_linker", lambda: None)
    softmax = explorer.load("softmax", m=4, n=4)
    with pytest.raises(ExportError, match="no C compiler is found to link it"):
        export_package(softmax, tmp_path / "soft", schedule=seed(softmax))
    assert not list((tmp_path / "soft").iterdir())


def test_derivatives_in_words() -> None:
    found = Backward.parse("matmul m=24 n=40 k=16 tb=true A=dC C=dA")
    assert (
        found.workload(explorer.load("matmul", **LINEAR)).program
        == GRADIENTS[0].workload(explorer.load("matmul", **LINEAR)).program
    )
    assert found.tensors == {"A": "dC", "C": "dA"}
    inherited = Backward.parse("attention_backward")
    workload = inherited.workload(explorer.load("attention_lse", **HEADS, causal=True))
    assert dict(workload.arguments) == {**HEADS, "causal": True}
    with pytest.raises(UsageError, match="'tb' is not of the form name=value"):
        Backward.parse("matmul tb")
    with pytest.raises(UsageError, match="no operator ''"):
        Backward.parse(" ")


def test_the_command_writes_a_package(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "softmax", "m=5", "n=70", "--out", str(tmp_path / "soft")]
    words += ["--records", str(packages / "records.db")]
    assert cli.invoke([*words, "--backward", "softmax"]) == cli.EXIT_USAGE
    assert "give --torch too" in capsys.readouterr().err
    assert cli.invoke([*words, "--torch"]) == cli.EXIT_DONE
    assert f"wrote {tmp_path / 'soft' / '__init__.py'}" in capsys.readouterr().out


# --- with torch ---------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed; no part of it is needed")


@pytest.fixture
def package(packages: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Packages by name, whatever another test has imported under it."""
    monkeypatch.syspath_prepend(str(packages))
    for folder in packages.iterdir():
        monkeypatch.delitem(sys.modules, folder.name, raising=False)
    yield importlib.import_module
    importlib.invalidate_caches()


def test_operators_compute_and_differentiate(package: Any, torch: Any) -> None:
    a = torch.randn(24, 40, dtype=torch.float32, requires_grad=True)
    b = torch.randn(40, 16, requires_grad=True)
    linear = package("linear").matmul
    weights = torch.randn(24, 16)
    uses: tuple[Callable[[Any], Any], ...] = (
        lambda c: (c * weights).sum(),
        lambda c: c.sum(),  # a gradient of one number in memory
        lambda c: (c.t() ** 2).sum(),
    )
    for use in uses:
        found = torch.autograd.grad(use(linear(a, b)), (a, b))
        wanted = torch.autograd.grad(use(a @ b), (a, b))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    (only,) = torch.autograd.grad(linear(a, b.detach()).sum(), (a,))
    torch.testing.assert_close(only, b.detach().sum(1).expand(24, 40), rtol=1e-4, atol=1e-4)


def test_several_outputs_may_be_differentiated(package: Any, torch: Any) -> None:
    q, k, v = (torch.randn(1, 2, 16, 8, requires_grad=True) for _ in range(3))
    out, _ = package("flash").attention_lse(q, k, v)
    same = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(out, same, rtol=1e-4, atol=1e-4)
    weights = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), weights)
    for one, other in zip(found, torch.autograd.grad(same, (q, k, v), weights), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_torch_finds_nothing_wrong(package: Any, torch: Any) -> None:
    """Schema, fake, autograd, tracing: for all operators of all packages."""
    for name in ("linear", "flash", "both", "soft"):
        module = package(name)
        for number, op in enumerate([*module._ops, module._plain]):
            row = module.KERNELS[number % len(module._ops)]
            tensors = [torch.randn(shape, dtype=dtype) for _, shape, dtype in row[4]]
            torch.library.opcheck(op, tuple(tensors))
            if op is module._ops[0] and module.DERIVATIVES:
                torch.library.opcheck(op, tuple(t.requires_grad_() for t in tensors))


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.long)]
)
def test_compiled_functions_take_operators_as_they_are(
    package: Any, torch: Any, backend: str
) -> None:
    linear, both = package("linear").matmul, package("both").sum_and_product

    def layer(a: Any, b: Any, x: Any) -> Any:
        total, product = both(x, x.cos())
        return torch.relu(linear(a * 2, b)).sum() + (total * product).sum()

    a, b, x = torch.randn(24, 40, requires_grad=True), torch.randn(40, 16), torch.randn(33)
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(a, b, x), layer(a, b, x), rtol=1e-4, atol=1e-3)
    (found,) = torch.autograd.grad(compiled(a, b, x), (a,))
    (wanted,) = torch.autograd.grad(torch.relu(a * 2 @ b).sum(), (a,))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_memory_is_read_where_it_is(package: Any, torch: Any) -> None:
    whole = torch.randn(7, 24, 40)
    b = torch.randn(40, 16)
    torch.testing.assert_close(
        package("linear").matmul(whole[3], b), whole[3] @ b, rtol=1e-4, atol=1e-4
    )


def test_what_kernels_do_not_take_is_one_line(package: Any, torch: Any) -> None:
    linear, soft = package("linear").matmul, package("soft").softmax_of_70
    a, b = torch.randn(24, 40), torch.randn(40, 16)
    raw = torch.from_numpy(np.zeros(5 * 70 * 4 + 1, np.uint8)[1:].view(np.float32))
    cases = [
        (linear, (a[:3], b), ValueError, r"matmul: A has shape \(3, 40\); it must be \(24, 40\)"),
        (linear, (a, b.double()), TypeError, "B is of torch.float64; it must be torch.float32"),
        (linear, (a, torch.randn(16, 40).t()), ValueError, r"B has strides \(1, 40\); pass it"),
        (linear, (a.to("meta"), b[:1].to("meta")), ValueError, r"B has shape \(1, 16\)"),
        (soft, (raw.view(5, 70),), ValueError, "X does not start at a multiple of its elements"),
    ]
    for function, tensors, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            function(*tensors)
        assert "\n" not in str(caught.value)
    with pytest.raises(NotImplementedError, match="softmax_of_70: no kernel of dX was exported"):
        soft(torch.randn(5, 70, requires_grad=True)).sum().backward()


def test_a_package_may_be_there_twice(
    package: Any, packages: Path, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy the operators are the same ones; another kernel of that name has its own."""
    first = package("soft")
    softmax = explorer.load("softmax", m=5, n=70)
    export_package(softmax, tmp_path / "again", schedule=seed(softmax), name="softmax_of_70")
    other = explorer.load("softmax", m=6, n=70)
    export_package(other, tmp_path / "larger", schedule=seed(other), name="softmax_of_70")
    monkeypatch.syspath_prepend(str(tmp_path))
    again, larger = package("again"), package("larger")
    assert again._ops == first._ops
    assert larger._ops != first._ops
    x = torch.randn(6, 70)
    torch.testing.assert_close(larger.softmax_of_70(x), x.softmax(1))
    torch.testing.assert_close(again.softmax_of_70(x[:5]), x[:5].softmax(1))


def test_the_page_is_right(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks that need torch, behind those that do not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    namespace: dict[str, Any] = {"__name__": "page"}
    for package in ("linear", "linears"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    before = list(sys.path)
    try:
        for language in ("python", "py"):
            for block in blocks("docs/exports.md", language):
                exec(compile(block, "docs/exports.md", "exec"), namespace)
    finally:
        sys.path[:] = before


GPU = """
def run(A, B):
    return A @ B
"""


def test_kernels_of_a_gpu_are_called_through_their_modules(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here torch's own product on the host stands for one."""
    tensors = tuple(
        Argument(name, shape, "bf16", role)
        for name, shape, role in (
            ("A", (4, 6), "input"), ("B", (6, 3), "input"), ("C", (4, 3), "output"),
        )
    )  # fmt: skip
    kernel = Kernel("product", "cuda", tensors, (("cuda", "text"),), "e", 1)
    text = package_text(Part(kernel, "forward"), [], {})
    assert 'DEVICE = "cuda"' in text
    (tmp_path / "on_gpu" / "forward").mkdir(parents=True)
    (tmp_path / "on_gpu/forward/product.py").write_text(GPU)
    (tmp_path / "on_gpu/__init__.py").write_text(text.replace("DEVICE.upper()", '"CPU"'))
    monkeypatch.syspath_prepend(str(tmp_path))
    module: ModuleType = importlib.import_module("on_gpu")
    a, b = torch.randn(4, 6).bfloat16(), torch.randn(6, 3).bfloat16()
    assert torch.equal(module.product(a, b), a @ b)
    torch.library.opcheck(module._plain, (a, b))


def test_tensors_in_any_order_find_their_places() -> None:
    kernel = explorer.load("matmul", **LINEAR)
    assert [spec.name for spec in kernel.program.inputs] == [
        a.name for a in kernel.kernel(seed(kernel)).arguments if a.role == "input"
    ]
    lse = load_operator("attention_lse").build(**HEADS)
    backward = load_operator("attention_backward").build(**HEADS)
    derivative = Derivative.of(lse, backward, {})
    assert derivative.takes == ("Q", "K", "V", "O", "dO", "L")
    assert derivative.gives == ("dQ", "dK", "dV")
    assert derivative.folder == "dQ_dK_dV"
