"""Whatever a name, a message or a fact holds, the terminal gets letters and line ends."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from explorer import cli
from explorer.baseline import Baseline
from explorer.cli.plain import PlainStream, shown_plainly
from explorer.outcome import Outcome
from explorer.recall import to_record
from explorer.workload import Workload
from ir.printable import printable, shortened
from records import Store

ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00b5 text", "plain \u00b5 text"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\x08\u202e", "a\\rb\\x08\\u202e"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_is_not_printable_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    stream = io.StringIO()
    PlainStream(stream).write(text + "\n")
    assert stream.getvalue() == shown + "\n"
    assert shortened(text * 1000).isprintable()


def test_a_terminal_without_the_letter_gets_its_code() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print("5 \u00b5s", file=PlainStream(stream), flush=True)
    assert stream.buffer.getvalue() == b"5 \\xb5s\n"


def test_streams_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr

    @shown_plainly
    def fail() -> None:
        print(ESCAPE)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert (sys.stdout, sys.stderr) == before
    assert "\x1b" not in capsys.readouterr().out


def test_no_verb_passes_escape_codes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workload = Workload.of("row_sum", {"m": 64, "n": 64})
    schedule = workload.space().schedule(workload.space().seed_rows(np.random.default_rng(0))[0])
    with Store("x.db") as store:
        options = {"strategy": ESCAPE, "threads": None, "baseline": Baseline(why=ESCAPE).to_facts()}
        job = store.new_job("row_sum", workload.extents_json, "cpu", json.dumps(options))
        good = to_record(workload, schedule, Outcome("ok", 1e-3), job.id, "random")
        store.add(replace(good, extents=json.dumps({ESCAPE: 4, "m": 64, "n": 64})))
        store.add(replace(good, status="crash", seconds=None, detail=ESCAPE, threads=3))
        store.keep_texts((str(workload.program),))
    words = ["--records", "x.db"]
    for verb in (
        ["top"], ["top", ESCAPE], ["explain", "--job", job.id], ["report", job.id],
        ["db", "stats", "--workloads"], ["db", "stats"], ["db", "check"],
        ["report", ESCAPE], ["tune", "--resume", ESCAPE], ["run", ESCAPE],
        ["space", "row_sum", ESCAPE],
        ["db", "export", f"{ESCAPE}.jsonl"], ["db", "import", f"{ESCAPE}.none"],
    ):  # fmt: skip
        given = verb if verb[0] == "space" else [*verb, *words]
        assert cli.invoke(given) is not None
        captured = capsys.readouterr()
        for said in (captured.out, captured.err):
            assert printable(said, keep="\n\t") == said, verb


def test_the_panel_shows_titles_as_they_stand() -> None:
    from explorer.cli.panel import _words

    stream = io.StringIO()
    Console(file=stream, force_terminal=False).print(_words(f"[red]{ESCAPE}[/nothing]"))
    assert stream.getvalue().strip() == "[red]\\x1b]0;owned\\x07\\x1b[31m[/nothing]"
