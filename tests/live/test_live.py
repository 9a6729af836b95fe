"""`tilewright watch`: what the page is told, who may ask, and how a browser shows it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer import cli
from explorer.live.server import LiveServer
from explorer.quality import QUALITY
from explorer.sharing import Sharing
from explorer.workload import Workload
from records import Address, Job, Record, Store
from tests.browser import dumped
from tests.cli.recorded import TRIALS, TUNED, recorded
from tests.report.conftest import MARKUP


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "records.db"
    recorded(path)
    with Store(path) as records:
        job = records.jobs()[0]
        (first, *_) = records.records(job=job.id)
        told = first.from_dict(json.loads(first.to_json()) | {"status": "crash", "seconds": None,
                                                              "detail": MARKUP})  # fmt: skip
        records.add(told)
        options = json.loads(job.options) | {QUALITY: [[8, 0.5, 1.2, 1.0], [16, 0.75, 1.0, 0.6]]}
        records.update_job(job.id, "done", json.dumps(options))
    return path


@pytest.fixture
def server(store: Path) -> Iterator[LiveServer]:
    with LiveServer(Address.of(store)) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(10)


def asked(server: LiveServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.request(headers.pop("method", "GET"), path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def told(server: LiveServer, path: str) -> Any:
    status, _, body = asked(server, path)
    assert status == 200, body
    return json.loads(body)


def first_job(store: Path) -> Job:
    with Store(store, read_only=True) as records:
        return records.jobs()[0]


def test_all_jobs_and_machines_are_told(server: LiveServer, store: Path) -> None:
    found = told(server, "/api/jobs")
    assert [job["job"] for job in found["jobs"]][-1] == first_job(store).id
    last = found["jobs"][-1]
    assert (last["state"], last["best"], last["settled"]) == ("done", "900 µs", True)
    assert last["outcomes"] == {"ok": TRIALS, "crash": 1}
    (machine,) = found["machines"]
    assert machine["trials"] == found["trials"] == 3 * (TRIALS + 2) + 1
    assert machine["outcomes"]["crash"] == 1
    assert machine["running"] == []
    assert machine["hardware"] == last["hardware"]


def test_a_job_is_told_with_its_course_and_its_model(server: LiveServer, store: Path) -> None:
    job = first_job(store)
    found = told(server, f"/api/jobs/{job.id[:6]}")
    series = {one["name"]: one["data"] for one in found["figures"]["by_trial"]["option"]["series"]}
    assert (len(series["right"]), len(series["failed"])) == (TRIALS, 1)
    correlation = found["figures"]["accuracy"]["option"]["series"][0]["data"]
    assert correlation == [[8, 0.5], [16, 0.75]]
    (failure,) = found["failures"]
    assert (failure["status"], failure["trials"], failure["detail"]) == ("crash", 1, MARKUP)
    assert found["latest"][0]["status"] == "crash"
    assert found["schedule"]["target"] == "cpu"


def test_what_runs_where_is_told(server: LiveServer, store: Path) -> None:
    """By the lease of the process that runs it; one without a living process is lost."""
    with Store(store) as records:
        job = records.update_job(first_job(store).id, "running")
        assert told(server, "/api/jobs")["jobs"][-1]["state"] == "lost"
        sharing = Sharing(records, Workload.of("matmul", TUNED))
        sharing.run(job)
        found = told(server, "/api/jobs")
        assert found["machines"][0]["running"] == [job.id]
        assert found["jobs"][-1]["by"].endswith("of this machine")
        sharing.close()
    assert told(server, f"/api/jobs/{job.id}")["state"] == "lost"


def test_only_what_is_new_is_sent(server: LiveServer, store: Path) -> None:
    _, headers, _ = asked(server, "/api/jobs")
    seen = {"If-None-Match": headers["ETag"]}
    assert asked(server, "/api/jobs", **seen)[0] == 304
    with Store(store) as records:
        old: Record = next(iter(records.records()))
        records.add(old.from_dict(json.loads(old.to_json()) | {"repeats": 99}))
    status, headers, _ = asked(server, "/api/jobs", **seen)
    assert (status, headers["ETag"] != seen["If-None-Match"]) == (200, True)


def test_nothing_is_written(server: LiveServer, store: Path) -> None:
    before = store.read_bytes()
    told(server, "/api/jobs")
    told(server, f"/api/jobs/{first_job(store).id}")
    for method in ("POST", "PUT", "DELETE"):
        assert asked(server, "/api/jobs", method=method)[0] == 501
    assert store.read_bytes() == before


def test_what_is_not_there_is_one_line(server: LiveServer, store: Path) -> None:
    status, _, body = asked(server, "/api/jobs/zz")
    assert (status, list(json.loads(body))) == (404, ["error"])
    for path in ("/../pyproject.toml", "/live.html/", "/api", "/api/jobs/%2e%2e"):
        assert asked(server, path)[0] == 404
    store.unlink()
    assert asked(server, "/api/jobs")[0] == 503
    assert b"error" in asked(server, "/api/jobs")[2]


def test_a_page_from_elsewhere_cannot_read_it(server: LiveServer) -> None:
    """Its name may be made to lead to this machine; what the browser then calls the server by is
    not ours. And nothing that the page shows can make it fetch from elsewhere."""
    assert asked(server, "/api/jobs", Host="evil.example")[0] == 403
    assert asked(server, "/api/jobs", Host="localhost:1")[0] == 200
    policy = asked(server, "/")[1]["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    page = asked(server, "/")[2].decode()
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    for script in re.findall(r'<script src="(.*?)"', page):
        assert asked(server, f"/{script}")[0] == 200


def test_a_browser_shows_all_jobs_and_one(server: LiveServer, store: Path, tmp_path: Path) -> None:
    shown = dumped(server.url, tmp_path)
    assert 'data-shown="all"' in shown
    assert shown.count('<span class="state done">') == 3
    job = first_job(store)
    one = dumped(f"{server.url}#{job.id}", tmp_path)
    assert f'data-shown="{job.id}"' in one
    assert one.count("<svg") == 3
    assert one.count("<path") > TRIALS
    assert MARKUP not in one
    assert MARKUP.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in one
    assert "Uncaught" not in shown + one


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--records", "gone.db"], 2, "gone.db: no such store"),
        (["zz", "--records", "records.db"], 2, "no such job"),
        (["--records", "notes.txt"], 8, "not a database"),
        (["--records", "records.db", "--host", "256.1.1.1"], 2, "cannot serve on 256.1.1.1 port"),
        (["--records", "records.db", "--port", "99999"], 2, "--port"),
    ],
)
def test_a_wrong_call_is_one_line(
    words: list[str],
    code: int,
    said: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(store.parent)
    Path("notes.txt").write_text("no store")
    assert cli.invoke(["watch", *words]) == code
    heard = capsys.readouterr().err
    assert said in heard
    assert heard.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(
    server: LiveServer, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = str(server.server_address[1])
    assert cli.invoke(["watch", "--records", str(store), "--port", port]) == cli.EXIT_USAGE
    heard = capsys.readouterr().err
    assert f"cannot serve on 127.0.0.1 port {port} (Address already in use)" in heard
    assert heard.count("\n") == 1


def test_it_serves_until_ctrl_c(store: Path) -> None:
    """On loopback unless asked otherwise; ending it so is no failure."""
    words = ["watch", "--records", str(store), "--port", "0"]
    code = (
        "import signal, sys; from explorer.cli import main; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a shell's `&` ignores it
        f"sys.argv[1:] = {words!r}; main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            line = run.stdout.readline()
            found = re.search(r"at http://127\.0\.0\.1:(\d+)/; Ctrl-C ends it", line)
            assert found, line
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
            connection.request("GET", "/api/jobs")
            assert len(json.loads(connection.getresponse().read())["jobs"]) == 3
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 0
            assert run.stdout.read() == "no longer served\n"
        finally:
            run.kill()
