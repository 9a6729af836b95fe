"""Limits of the system that a worker runs under: lower ones stay, and it runs all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ASKS = """
import json, resource, sys
from pathlib import Path
from explorer.runtime import process
from explorer.runtime.process import ProcessServer, Worker
soft, hard = (int(word) for word in sys.argv[2:])
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
process._MODULES = ()
server = ProcessServer("tests.runtime.echo:Nothing", Path(sys.argv[1]))
answer = Worker(server, "tests.runtime.echo:Echo").ask(20.0, "limits")
print(json.dumps(answer.value))
server.close()
"""
_MEG, _MOST, _NONE = 1 << 20, 1 << 36, -1  # -1 stands for no limit


@pytest.mark.parametrize(
    ("before", "within"),
    [
        ((_MEG, _MEG), (_MEG, _MEG)),
        ((_MEG, 2 * _MEG), (_MEG, 2 * _MEG)),
        ((_MEG, _NONE), (_MEG, _MOST)),
        ((_NONE, _NONE), (_MOST, _MOST)),
    ],
    ids=str,
)
def test_a_worker_has_the_lower_limit(
    before: tuple[int, int], within: tuple[int, int], tmp_path: Path
) -> None:
    words = [sys.executable, "-c", _ASKS, str(tmp_path), *map(str, before)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"core": [0, 0], "file": list(within)}


def test_operands_beyond_the_limit_are_told_in_a_line(tmp_path: Path) -> None:
    own = {
        "TILEWRIGHT_RECORDS": str(tmp_path / "r.db"),
        "TILEWRIGHT_CACHE": str(tmp_path / "cache"),
    }
    words = (
        "import resource, sys; from explorer import cli; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({8 * _MEG}, {8 * _MEG})); "
        "sys.exit(cli.invoke(sys.argv[1:]))"
    )
    command = ["tune", "row_sum", "m=2048", "n=2048", "--trials", "1", "--no-baseline"]
    done = subprocess.run(
        [sys.executable, "-c", words, *command],
        capture_output=True, text=True, check=False, timeout=60, env=os.environ | own,
    )  # fmt: skip
    assert done.returncode not in (0, 1)
    assert done.stderr.count("\n") == 1
    assert "no room for 16,777,216 bytes of operands (" in done.stderr
    assert "raise the limit on files (ulimit -f)" in done.stderr
