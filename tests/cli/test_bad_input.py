"""What the user gets wrong is one line on stderr, a code, and nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from explorer import cli
from records import Store

MATMUL = ("matmul", "m=32", "n=32", "k=32")

CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "verb": (("tun",), "No such command 'tun'"),
    "option": (("tune", *MATMUL, "--trails", "3"), "No such option: --trails"),
    "no operator": (("tune",), "Missing argument 'OPERATOR'"),
    "operator": (("tune", "matmull"), "no operator 'matmull' (did you mean 'matmul'?)"),
    "missing axis": (("tune", "matmul", "m=4", "n=4"), "missing k"),
    "axis": (("tune", *MATMUL, "bacth=2"), "'bacth' (did you mean 'batch'?)"),
    "word": (("tune", "matmul", "512"), "'512' is not of the form name=value"),
    "word twice": (("tune", *MATMUL, "m=3"), "'m' is given twice"),
    "extent": (("tune", "matmul", "m=-2", "n=4", "k=4"), "axis m=-2"),
    "no extent": (("tune", "matmul", "m=0", "n=4", "k=4"), "nothing to compute: output C has"),
    "no number": (("tune", "matmul", "m=4x", "n=4", "k=4"), "m='4x' is not a whole number"),
    "huge": (("tune", "matmul", "m=9999999", "n=9999999", "k=4"), "choose smaller extents"),
    "dtype": (("tune", *MATMUL, "dtype=f17"), "unknown dtype 'f17'"),
    "option value": (("tune", *MATMUL, "ta=perhaps"), "neither true nor false"),
    "pin name": (("tune", *MATMUL, "--pin", "rows.s1=4"), "the nearest is 'rows.s0'"),
    "pin value": (("tune", *MATMUL, "--pin", "rows.s0=77"), "rows.s0"),
    "pin word": (("space", *MATMUL, "--pin", "rows.s0"), "not of the form name=value"),
    "strategy": (("tune", *MATMUL, "--strategy", "evolve"), "nearest is 'evolutionary'"),
    "target": (("space", *MATMUL, "--target", "cpux"), "unknown target 'cpux'"),
    "hardware": (("space", *MATMUL, "--target", "cuda", "--hardware", "h300"), "known are h200"),
    "hardware of cpu": (("space", *MATMUL, "--hardware", "h200"), "knows no machine by name"),
    "hardware to tune": (("tune", *MATMUL, "--hardware", "h200"), "No such option: --hardware"),
    "kernel of cpu": (("show", *MATMUL, "--kernel"), "target cpu makes no kernels by passes"),
    "kernel without schedule": (
        ("show", *MATMUL, "--kernel", "--target", "cuda", "--hardware", "h200"),
        "give --schedule JSON or @FILE",
    ),
    "schedule without kernel": (("show", *MATMUL, "--schedule", "{}"), "goes with --kernel"),
    "hardware of a job": (("explain", "--job", "x", "--hardware", "h200"), "a job has its own"),
    "threads": (("tune", *MATMUL, "--threads", "0"), "threads=0"),
    "trials": (("tune", *MATMUL, "--trials", "0"), "trials=0"),
    "trials word": (("tune", *MATMUL, "--trials", "many"), "--trials"),
    "seed": (("tune", *MATMUL, "--seed", "-1"), "--seed"),
    "format": (("space", *MATMUL, "--format", "xml"), "xml"),
    "file": (("tune", "gone.py:x", "m=3"), "gone.py: no such operator file"),
    "schedule": (("run", *MATMUL, "--schedule", "{"), "schedule is not JSON"),
    "schedule file": (("run", *MATMUL, "--schedule", "@gone"), "No such file"),
    "schedule of another space": (
        ("run", *MATMUL, "--schedule", '{"target":"cpu","values":{}}'),
        "the schedule leaves open",
    ),
    "out": (("tune", *MATMUL, "--out", "taken"), "--out taken: a file is in the way"),
    "name": (("tune", *MATMUL, "--out", "k", "--name", "memcpy"), "is a function of the C library"),
    "name word": (("tune", *MATMUL, "--out", "k", "--name", "a-b"), "'a-b' cannot be the name of"),
    "name of nothing": (("tune", *MATMUL, "--name", "mine"), "give --out FOLDER too"),
    "out below": (("tune", *MATMUL, "--out", "taken/x/y"), "--out taken/x/y: a file is in the way"),
}


@pytest.mark.parametrize("case", CASES)
def test_usage_is_one_line_and_code_2(
    case: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(store.parent)
    Path("taken").write_text("")
    arguments, message = CASES[case]
    assert cli.invoke(list(arguments)) == cli.EXIT_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tilewright: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert sorted(path.name for path in store.parent.iterdir()) == ["taken"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", "does not import: ModuleNotFoundError"),
        ("def f(:", "does not import: SyntaxError: invalid syntax (bad.py, line 1)\n"),
        ("x = 1", "no operator 'f' in bad.py: known are none"),
        (
            "from ir import operator\n@operator\ndef f(g, m):\n    raise KeyError('oh')",
            "bad.py:f: KeyError: 'oh' (",
        ),
        ("from ir import operator\n@operator\ndef f(g, m):\n    pass", "f"),
        ("import sys\nsys.exit(5)", "does not import: SystemExit: 5 (bad.py, line 2)"),
        ("\nraise BaseException", "does not import: BaseException (bad.py, line 2)"),
        ("import numpy\nnumpy.zeros(-1)", "negative dimensions are not allowed (bad.py, line 2)"),
        ("import json\n\njson.loads('{')", "(bad.py, line 3)"),
        ("raise Exception('a\\x1b[31m\\nb')", "does not import: Exception: a\\x1b[31m b (bad.py"),
        ("def f():\n    return f()\nf()", "RecursionError"),
        (
            "class E(Exception):\n    def __str__(self):\n        return 1\nraise E",
            "does not import: E (bad.py, line 4)",
        ),
        ("exit()", "does not import: SystemExit"),
        ("x = '\\udcff'\nprint(x.encode())", "UnicodeEncodeError"),
        (
            "from ir import operator\n@operator\ndef f(g, m):\n    exit(0)",
            "bad.py:f: SystemExit: 0 (bad.py, line 4)",
        ),
        (
            "from ir import operator\n@operator\ndef f(g, m):\n    g.axis('m', m + 'x')",
            "bad.py:f: TypeError: unsupported operand type(s) for +: 'int' and 'str' (bad.py, line",
        ),
        (
            "from ir import operator\n@operator\ndef f(g, m):\n    g.axis('m', -1)",
            "f: axis m=-1; an extent is a whole number >= 0 (bad.py, line 4)",
        ),
    ],
)
def test_operator_files_that_do_not_work(
    text: str,
    message: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(store.parent)
    Path("bad.py").write_text(text, errors="surrogateescape")
    assert cli.invoke(["tune", "bad.py:f", "m=4"]) == cli.EXIT_USAGE
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not store.exists()


@pytest.mark.parametrize(
    "text",
    [
        "while True: pass",
        "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except BaseException: pass",
        "from ir import operator\n@operator\ndef f(g, m):\n    while True: pass",
    ],
)
def test_operator_files_that_do_not_end(
    text: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr("ir.author.PATIENCE", 0.1)
    Path("bad.py").write_text(text)
    before = signal.getsignal(signal.SIGALRM)
    assert cli.invoke(["show", "bad.py:f", "m=4"]) == cli.EXIT_USAGE
    assert "not done after 0.1 s" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_illegal_schedule_is_refused_with_its_constraint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import numpy as np

    import explorer

    space = explorer.load("matmul", m=32, n=32, k=32).space()
    drawn = space.shape.draw(np.random.default_rng(0), 200)
    row = drawn[~space.legal(drawn)][0]
    schedule = space.schedule(row)
    assert cli.invoke(["run", *MATMUL, "--schedule", schedule.to_json()]) == cli.EXIT_USAGE
    refusal = space.refusal(schedule)
    assert refusal is not None
    assert f"the schedule is illegal: {refusal.constraint}: " in capsys.readouterr().err


def test_stores_that_cannot_be_used_end_with_8(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.write_text("not a store, but something that must stay as it is")
    assert cli.invoke(["tune", *MATMUL, "--trials", "1"]) == 8
    assert cli.invoke(["tune", *MATMUL, "--records", str(store.parent)]) == 8
    assert capsys.readouterr().err.count("\n") == 2
    assert store.read_text().startswith("not a store")


def _make_newer(store: Path) -> str:
    with Store(store):
        pass
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE tilewright_schema SET version = version + 1")
    return "newer Tilewright"


def _damage(store: Path) -> str:
    with Store(store) as records:
        records.new_job("matmul", "{}", "cpu")
    data = bytearray(store.read_bytes())
    data[200:4000] = bytes(3800)
    store.write_bytes(data)
    return "damaged"


@pytest.mark.parametrize("spoil", [_make_newer, _damage])
@pytest.mark.parametrize(
    "words",
    [
        ("tune", *MATMUL, "--trials", "1"),
        ("tune", "--resume"),
        ("top",),
        ("report",),
        ("explain", *MATMUL, "--schedule", "best"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_every_verb_that_meets_a_spoilt_store_ends_with_8(
    spoil: Callable[[Path], str],
    words: tuple[str, ...],
    store: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = spoil(store)
    before = store.read_bytes()
    assert cli.invoke(list(words)) == cli.EXIT_STORE
    captured = capsys.readouterr()
    assert reason in captured.err + captured.out
    assert store.read_bytes() == before


@pytest.mark.parametrize("verb", ["run", "export"])
def test_without_a_record_there_is_nothing_to_do(
    verb: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke([verb, *MATMUL]) == cli.EXIT_NOTHING
    assert "tune it first" in capsys.readouterr().err
    assert not store.exists()


def test_a_missing_target_ends_with_6(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert cli.invoke(["space", *MATMUL]) == cli.EXIT_TARGET
    assert "riscv64" in capsys.readouterr().err
    assert cli.invoke(["targets"]) == cli.EXIT_DONE
    assert "missing" in capsys.readouterr().out


def test_defects_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("explorer.workload.find_source", broken)
    with pytest.raises(ZeroDivisionError):
        cli.invoke(["show", *MATMUL])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tune", *MATMUL, "--out", "place/kernel"), "--out place/kernel: "),
        (("export", *MATMUL, "--out", "place"), "--out place: "),
        (("train", "--records", "x.jsonl", "--out", "place/model"), "--out place/model: "),
        (("report", "--out", "place/page.html"), "--out place/page.html: "),
        (("layout", "show", "4:1", "--svg", "place/x.svg"), "--svg place/x.svg: "),
        (("db", "export", "place/x.jsonl"), "FILE place/x.jsonl: "),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    words: tuple[str, ...],
    said: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(store.parent)
    Path("place").mkdir()
    monkeypatch.setattr("explorer.cli.places.tempfile.TemporaryFile", full)
    assert cli.invoke(list(words)) == cli.EXIT_USAGE
    message = capsys.readouterr().err
    assert said in message
    assert "cannot be written: No space left on device; name another" in message
    assert not store.exists()


def test_a_folder_below_what_is_no_folder(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job of a file has a folder of its own, and missing ones are made."""
    jobs, out = tmp_path / "jobs.toml", tmp_path / "new" / "out"
    job = "[[job]]\noperator = 'row_sum'\narguments = { m = 8, n = 8 }\n"
    jobs.write_text(f"trials = 2\n{job}{job}")
    out.mkdir(parents=True)
    (out / "2-row_sum").write_text("")
    assert cli.invoke(["tune", "--jobs", str(jobs), "--out", str(out)]) == cli.EXIT_USAGE
    assert "2-row_sum: a file is in the way" in capsys.readouterr().err
    assert not store.exists()


def test_the_users_own_store_where_no_folder_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.delenv("TILEWRIGHT_RECORDS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "taken" / "share"))
    assert cli.invoke(["tune", *MATMUL, "--trials", "1"]) == cli.EXIT_STORE
    message = capsys.readouterr().err
    assert message.startswith("tilewright: ")
    assert "is not a folder: name a file in a folder for the records" in message
