"""`tilewright layout`: tables, pictures, explanations, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from explorer import cli


def run(*arguments: str) -> int:
    return cli.invoke(["layout", *arguments])


def test_show_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "(2,4):(4,1)") == cli.EXIT_DONE
    assert capsys.readouterr().out.splitlines()[-1] == "1 | 4 5 6 7"


def test_show_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory, threads = tmp_path / "memory.svg", tmp_path / "threads.svg"
    assert run("show", "S(3,3,3) o 0 o (64,64):(64,1)", "--svg", str(memory)) == cli.EXIT_DONE
    fragment = "((4,8),(2,2)):((32,1),(16,8))"
    assert run("show", fragment, "--tile", "16x8", "--svg", str(threads)) == cli.EXIT_DONE
    for path in (memory, threads):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "T31 V3" in threads.read_text()


def test_explain_names_instructions_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("matmul", "m=512", "n=512", "k=512", "dtype=bf16")
    tiles = [f"--tile={name}" for name in ("m=128", "n=128", "k=64")]
    assert run("explain", *words, *tiles) == cli.EXIT_DONE
    out = capsys.readouterr().out
    assert "wgmma.m64n" in out
    assert "tma.load" in out
    assert "decided" in out
    assert "refused" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "(4,8"), "the end"),
        (("show", "4:1", "--svg", "/nonexistent/x.svg"), "there is no folder /nonexistent"),
        (("show", "(4,8):(8,1)", "--tile", "4by8", "--svg", "x.svg"), "ROWSxCOLUMNS"),
        (("show", "S(1,2,3) o 0 o 64:1", "--tile", "8x8", "--svg", "x.svg"), "has a swizzle"),
        (("show", "(4,8):(8,1)", "--tile", "4x8"), "add --svg"),
        (("show", "4:9999999999999999999"), "is above"),
        (("show", "(600,600):(1,600)"), "360000 coordinates"),
        (("explain", "matmul", "m=64", "n=64", "k=64", "--tile", "m=48"), "48 does not divide"),
        (("explain", "matmul", "m=64", "n=64", "k=64", "--tile", "m=x"), "whole number"),
        (("explain", "matmal", "m=64"), "matmul"),
        (("explain", "matmul", "m=64", "n=64", "k=64", "--family", "wmma"), "wgmma"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == cli.EXIT_USAGE
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
