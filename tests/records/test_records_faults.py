"""What a store survives and what it refuses: kills, full disks, damage, locks, rivals."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy import event

from records import Record, Store, StoreError, export_records
from records.errors import (
    DamagedStore,
    ForeignFile,
    FullStore,
    LockedStore,
    MovedStore,
    ReadOnlyStore,
    StoreUnavailable,
    UnusableLocation,
)

Make = Callable[..., Record]
PROCESSES = multiprocessing.get_context("fork")
NOBODY = 65534


def refused(kind: type[StoreError], action: Callable[[], object]) -> str:
    """The message of a refusal, which must be one line and end the command line with 8."""
    with pytest.raises(kind) as refusal:
        action()
    message = str(refusal.value)
    assert "\n" not in message
    assert refusal.value.exit_code == 8
    return message


def write_until_killed(path: Path, make: Make, writer: int, acknowledged: Connection) -> None:
    with Store(path) as store:
        for index in range(10_000):
            trial = make(index, job=f"writer-{writer}", detail="x" * 500)
            store.add(trial)
            acknowledged.send_bytes(trial.key.encode())


def drain(pipe: Connection) -> Iterator[str]:
    """What a dead writer managed to say, less what the kill cut short."""
    try:
        while True:
            yield pipe.recv_bytes().decode()
    except (EOFError, OSError):
        return


def test_kill_at_any_moment_keeps_every_acknowledged_trial(path: Path, record: Make) -> None:
    moments = random.Random(7)
    acknowledged: set[str] = set()
    for writer in range(12):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=write_until_killed, args=(path, record, writer, theirs))
        child.start()
        theirs.close()
        if writer % 2:  # the others may die before the tables are made
            assert ours.poll(30)
        time.sleep(moments.uniform(0.0, 0.1))
        child.kill()
        acknowledged.update(drain(ours))
        child.join()
        assert child.exitcode == -signal.SIGKILL
        with Store(path) as store:
            assert store.check() >= len(acknowledged)
            assert acknowledged <= {found.key for found in store.records()}
    assert len(acknowledged) >= 6


def test_torn_log_keeps_a_prefix(path: Path, record: Make, tmp_path: Path) -> None:
    """Power fails while the log is written: what had not been acknowledged may go, no more."""
    batch = [record(index) for index in range(12)]
    sizes = []
    with Store(path) as store:
        for trial in batch:
            store.add(trial)
            sizes.append(os.path.getsize(f"{path}-wal"))
        shutil.copy(path, tmp_path / "whole.db")
        log = Path(f"{path}-wal").read_bytes()
    for cut in random.Random(3).sample(range(sizes[0], len(log)), 25):
        torn = tmp_path / f"torn-{cut}.db"
        shutil.copy(tmp_path / "whole.db", torn)
        Path(f"{torn}-wal").write_bytes(log[:cut] + os.urandom(100))
        with Store(torn) as store:
            kept = sum(size <= cut for size in sizes)
            assert list(store.records()) == batch[:kept]
            store.check()


def limit_pages(store: Store, pages: int) -> None:
    """From now on the database behind `store` has room for no more than `pages`."""
    engine = store._database.engine
    event.listen(engine, "begin", lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages}"))


def fill(store: Store, make: Make, size: int) -> list[Record]:
    """Add trials until the store refuses; returns the acknowledged ones."""
    kept = []
    for index in range(size):
        trial = make(index, detail="x" * 4000)
        try:
            store.add(trial)
        except StoreError:
            break
        kept.append(trial)
    assert 0 < len(kept) < size
    return kept


def test_full_disk_keeps_every_acknowledged_trial(path: Path, record: Make) -> None:
    with Store(path) as store:
        limit_pages(store, 60)
        kept = fill(store, record, 200)
        message = refused(FullStore, lambda: store.add_all([record(n) for n in range(900, 999)]))
        assert "is full" in message
        assert "all that was acknowledged is kept" in message
        assert list(store.records()) == kept
        limit_pages(store, 10_000)
        assert store.add(record(1000))
    with Store(path) as store:
        assert list(store.records()) == [*kept, record(1000)]
        assert store.check() == len(kept) + 1


def test_failing_writes_keep_every_acknowledged_trial(path: Path, record: Make) -> None:
    """The operating system refuses to let any file grow past 300 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store(path) as store:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
            kept = fill(store, record, 200)
            refused(StoreError, lambda: store.add(record(999, detail="x" * 16_000)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(store.records()) == kept
        assert store.add(record(1000))
    with Store(path) as store:
        assert store.check() == len(kept) + 1


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Root may write anywhere, so stop being root for a moment."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


@pytest.fixture
def sealed(shared_folder: Path, record: Make) -> Iterator[Path]:
    """A store in a folder that nobody may write to."""
    with Store(shared_folder / "records.db") as store:
        store.add(record(1))
    shared_folder.chmod(0o555)
    yield shared_folder
    shared_folder.chmod(0o755)


@pytest.mark.parametrize("name", ["records.db", "new.db", "new/deep/records.db"])
def test_read_only_folder_is_refused(sealed: Path, unprivileged: None, name: str) -> None:
    message = refused(ReadOnlyStore, lambda: Store(sealed / name))
    assert str(sealed / name) in message
    assert "writable" in message
    assert [entry.name for entry in sealed.iterdir()] == ["records.db"]


def test_read_only_file_is_refused(sealed: Path, record: Make) -> None:
    (sealed / "records.db").chmod(0o444)
    sealed.chmod(0o777)
    if not os.geteuid():
        os.seteuid(NOBODY)
    try:
        assert "file cannot be written" in refused(
            ReadOnlyStore, lambda: Store(sealed / "records.db")
        )
    finally:
        if not os.getuid():
            os.seteuid(0)


def test_unreachable_folder_is_refused(shared_folder: Path, unprivileged: None) -> None:
    if not os.getuid():
        os.seteuid(0)
    (shared_folder / "closed").mkdir(mode=0o000)
    if not os.getuid():
        os.seteuid(NOBODY)
    refused(ReadOnlyStore, lambda: Store(shared_folder / "closed" / "records.db"))


@pytest.mark.parametrize("content", [b"hello", b"{}\n" * 400, b"\0" * 4096, b"SQLite 3" * 999])
def test_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    message = refused(ForeignFile, lambda: Store(path))
    assert "is not a database" in message
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_empty_file_becomes_a_store(path: Path, record: Make) -> None:
    path.touch()
    with Store(path) as store:
        assert store.add(record())


def test_folder_or_device_is_refused(tmp_path: Path) -> None:
    refused(UnusableLocation, lambda: Store(tmp_path))
    refused(UnusableLocation, lambda: Store("/dev/null"))
    (tmp_path / "file").touch()
    refused(UnusableLocation, lambda: Store(tmp_path / "file" / "records.db"))
    refused(StoreError, lambda: Store(tmp_path / ("n" * 300)))


@pytest.fixture
def filled(path: Path, record: Make) -> Path:
    with Store(path) as store:
        store.add_all([record(index, detail="x" * 300) for index in range(200)])
    return path


def test_truncated_store_is_refused(filled: Path) -> None:
    size = filled.stat().st_size
    for share in (0.3, 0.6, 0.95):
        os.truncate(filled, int(size * share) // 4096 * 4096)
        message = refused(DamagedStore, lambda: Store(filled))
        assert "is damaged" in message
        assert "tilewright db repair" in message


def test_overwritten_page_is_refused(filled: Path) -> None:
    whole = filled.read_bytes()
    for page in range(1, len(whole) // 4096, 7):
        start = page * 4096
        filled.write_bytes(whole[:start] + b"\xa5" * 4096 + whole[start + 4096 :])
        refused(DamagedStore, lambda: Store(filled))
        Path(f"{filled}-wal").unlink(missing_ok=True)
        Path(f"{filled}-shm").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("column", "value"), [("seconds", "1.0"), ("status", "'fine'"), ("extents", "'m=1'")]
)
def test_altered_trial_is_found_by_its_hash(filled: Path, column: str, value: str) -> None:
    with sqlite3.connect(filled) as connection:
        connection.execute(f"UPDATE trials SET {column} = {value} WHERE number = 7")
    connection.close()
    with Store(filled) as store:
        assert "trial 7" in refused(DamagedStore, store.check)


def test_locked_store_is_refused_after_the_timeout(path: Path, record: Make) -> None:
    with Store(path, busy_seconds=0.1) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        assert "is locked" in refused(LockedStore, lambda: store.add(record(1)))
        assert store.count() == 0
        rival.execute("COMMIT")
        rival.close()
        assert store.add(record(1))


def test_locked_file_is_not_opened(path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as rival:
        rival.execute("PRAGMA locking_mode=EXCLUSIVE")
        rival.execute("BEGIN EXCLUSIVE")
        refused(LockedStore, lambda: Store(path, busy_seconds=0.1))
        rival.execute("ROLLBACK")
    rival.close()


def test_waits_for_a_short_lock(path: Path, record: Make) -> None:
    with Store(path) as store:
        rival = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        rival.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.15, rival.execute, ["COMMIT"])
        timer.start()
        assert store.add(record(1))
        timer.join()
        rival.close()


def write_some(path: Path, make: Make, writer: int) -> None:
    with Store(path) as store:
        for index in range(30):
            assert store.add(make(index, job=f"writer-{writer}"))


def test_rival_processes_make_and_fill_one_store(path: Path, record: Make) -> None:
    writers = [PROCESSES.Process(target=write_some, args=(path, record, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with Store(path) as store:
        assert store.check() == 120
        assert [store.count(job=f"writer-{n}") for n in range(4)] == [30] * 4


def test_store_that_is_moved_acknowledges_nothing(path: Path, record: Make) -> None:
    with Store(path) as store:
        store.add(record(1))
        path.rename(path.with_name("elsewhere.db"))
        assert "deleted, moved or replaced" in refused(MovedStore, lambda: store.add(record(2)))


def test_deleted_store_acknowledges_nothing(path: Path, record: Make) -> None:
    with Store(path) as store:
        path.unlink()
        refused(MovedStore, lambda: store.add(record(1)))


def test_commit_is_forced_to_the_disk(path: Path) -> None:
    with Store(path) as store, store._database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_interrupted_batch_leaves_nothing(path: Path, record: Make) -> None:
    def trials() -> Iterator[Record]:
        yield record(1)
        raise KeyboardInterrupt

    with Store(path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.add_all(trials())
        assert store.count() == 0


def test_closed_disk_error_is_unavailable(path: Path, record: Make) -> None:
    with Store(path) as store:
        store.add(record(1))
        with pytest.raises(StoreUnavailable, match="cannot write"):
            export_records(store, "/proc/none.jsonl")


def test_unfinished_process_leaves_a_sound_store(path: Path) -> None:
    """A process that ends without closing its store, as one does after an unhandled error."""
    code = (
        "import sys, os; from records import Store;"
        "store = Store(sys.argv[1]); store.new_job('matmul', '{}', 'cpu'); os._exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 3
    with Store(path) as store:
        assert len(store.jobs("running")) == 1
