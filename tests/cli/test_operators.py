"""`tilewright operators`, settings on the command line, and the pages made of the catalogue."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import cli
from explorer.catalogue_pages import pages
from explorer.cli.app import arguments_of
from ir import load_operator, operator_names
from ir.catalogue import families, settings_of
from tests.docs.pages import ROOT
from tests.few import few
from tests.job.device import ScriptedDevice

COMMAND = (sys.executable, "-m", "explorer.cli")
PAGES = ROOT / "docs" / "operators"
SETTINGS = """from ir import Graph, operator

EXTENTS = {"twice": {"few": {"m": 5}, "many": {"m": 500}}}


@operator
def twice(g: Graph, m: int, by: float = 2.0) -> None:
    \"\"\"Y = 2 X.\"\"\"
    g.output("Y", g.input("X", g.axes(m=m), "f32") * by)
"""


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.invoke(list(words)) == cli.EXIT_DONE, capsys.readouterr().err
    return capsys.readouterr().out


def test_the_list_names_every_operator_below_its_family() -> None:
    done = subprocess.run([*COMMAND, "operators"], capture_output=True, text=True, check=True)
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")]
    assert [block[0].partition(":")[0] for block in blocks] == [f.name for f in families()]
    listed = [line.split()[0] for block in blocks for line in block[1::2]]
    assert sorted(listed) == list(operator_names())


def test_the_list_as_json_has_arguments_and_settings() -> None:
    words = [*COMMAND, "operators", "--format", "json"]
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    operators = {op["name"]: op for family in found["families"] for op in family["operators"]}
    assert set(operators) == set(operator_names())
    softmax = operators["softmax"]
    dtype = {"name": "dtype", "default": "f32"}
    assert softmax["arguments"] == [{"name": "m"}, {"name": "n"}, dtype]
    assert softmax["settings"]["cpu"] == {"m": 4096, "n": 4096}


def test_one_operator_is_shown_with_the_tensors_of_its_small_setting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = told(capsys, "operators", "conv1d")
    assert out.startswith("conv1d n length c f r=3 stride=1 padding=0 dilation=1 dtype='f32' ")
    assert "\n    Y[n, p, f] = " in out
    assert re.search(r"  small +n=2 length=33 c=10 f=12 stride=2 padding=1\n", out)
    assert "  input   X[n, 2*p + r - 1, c]  f32 2 x 33 x 10\n" in out
    assert "  output  Y[n, p, f]  f32 2 x 17 x 12\n" in out


def test_one_operator_is_shown_at_given_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "operators", "embedding", "small", "m=3", "--format", "json")
    tensors = {t["name"]: t for t in json.loads(out)["tensors"]}
    assert tensors["Y"]["shape"] == [3, 10]
    assert tensors["table"]["indices"] == ["index", "d"]


def test_a_file_has_settings_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SETTINGS)
    out = told(capsys, "operators", f"{file}:twice")
    assert "  many  m=500\n" in out
    assert "tensors" not in out  # none of them is called small
    assert "axis m = 5\n" in told(capsys, "show", f"{file}:twice", "few")
    assert "axis m = 7\n" in told(capsys, "show", f"{file}:twice", "few", "m=7", "by=3")


@pytest.mark.parametrize("verb", ["show", "space", "tune", "run", "export", "explain", "operators"])
def test_a_misspelt_setting_names_the_nearest(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke([verb, "rmsnorm", "llama-70b", "m=3"]) == cli.EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "'llama-70b' is not of the form name=value and no setting" in line
    assert "did you mean 'llama3-70b'?" in line
    assert line.endswith("settings are small, cpu, llama3-70b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("operators", "sofmax"), "did you mean 'softmax'?"),
        (("operators", "softmax", "n=4"), "missing m"),
        (("operators", "softmax", "--pages", "x"), "--pages writes those of all operators"),
        (("show", "softmax", "m=3", "small"), "'small' is not of the form name=value"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(list(words)) == cli.EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_committed_pages_are_what_the_catalogue_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made anew by `tilewright operators --pages docs/operators`."""
    told(capsys, "operators", "--pages", str(tmp_path / "new" / "pages"))
    made = {path.name: path.read_text() for path in (tmp_path / "new" / "pages").iterdir()}
    assert made == {path.name: path.read_text() for path in PAGES.iterdir()}
    assert made == pages(families())


def _examples(page: Path) -> list[str]:
    return re.findall(r"^    (tilewright .*)$", page.read_text(), re.M)


FAMILIES = sorted(path for path in PAGES.glob("*.md") if _examples(path))


def test_every_operator_has_an_example_that_names_a_program() -> None:
    shown = [shlex.split(line) for page in FAMILIES for line in _examples(page)]
    assert all(words[:2] == ["tilewright", "tune"] for words in shown)
    assert {words[2] for words in shown} == {
        op.name for family in families() for op in family.operators if settings_of(op)
    }
    for _, _, name, setting, *_ in shown:
        assert load_operator(name).build(**arguments_of(name, [setting])).outputs


@pytest.mark.parametrize("page", few(FAMILIES, range(0, 99, 8), [p.stem for p in FAMILIES]))
def test_the_first_example_of_a_page_tunes(
    page: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They ask a scripted device: every operator tunes on a real one in the corpus' own tests."""
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    told_json = told(capsys, *shlex.split(_examples(page)[0])[1:], "--format", "json")
    found = json.loads(told_json)["outcomes"]
    assert set(found) == {"ok"}
    assert found["ok"] <= 8  # a space may have fewer schedules
