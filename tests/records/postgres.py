"""A PostgreSQL server of the tests' own: in a temporary folder, reached by a socket in it."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

_FOLDERS = ("/usr/local/bin", "/usr/lib/postgresql/*/bin", "/opt/homebrew/bin", "/usr/pgsql-*/bin")
_USERS = ("postgres", "nobody")  # the server refuses to run as root
_SETTINGS = (
    "listen_addresses=''",
    "fsync=off",
    "max_connections=40",
    "shared_buffers=16MB",
    "log_min_messages=fatal",
)


def find_programs() -> Path | None:
    """The folder with the server's programs, None where there is none."""
    places = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep) if name]
    for pattern in _FOLDERS:
        places += sorted(Path("/").glob(pattern[1:]), reverse=True)
    for place in places:
        if all((place / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return place
    return None


def _user() -> str | None:
    """Whom to run the server as: oneself, or somebody with fewer rights than root."""
    if os.geteuid():
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _USERS if name in known), None)


class Server:
    """Started when made; `stop` and `start` at will; `close` removes everything."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._numbers = itertools.count()
        self._user = _user()
        self.running = False
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-N", "-U", "tester", "-A", "trust", "--locale=C", "-E", "UTF8")
        self.start()

    def start(self) -> None:
        settings = " ".join(f"-c {setting}" for setting in _SETTINGS)
        options = f"-k {self.folder} {settings}"
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")
        self.running = True

    def stop(self) -> None:
        """As if the power were cut: no farewell to anyone."""
        self.running = False
        self._run("pg_ctl", "-m", "immediate", "stop")

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def new_schema(self) -> str:
        """The URL of an empty place: a schema of its own in the one database."""
        name = f"fresh_{next(self._numbers)}"
        self.run_sql(f"CREATE SCHEMA {name}")
        return f"postgresql://tester@/postgres?host={self.folder}&options=-csearch_path%3D{name}"

    def new_database(self) -> str:
        """The URL of an empty database, which takes longer to make."""
        name = f"fresh_{next(self._numbers)}"
        self.run_sql(f"CREATE DATABASE {name}")
        return f"postgresql://tester@/{name}?host={self.folder}"

    def run_sql(self, statement: str) -> None:
        import psycopg

        address = f"host={self.folder} user=tester dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), "-D", str(self.folder / "data"), *arguments],
            cwd=self.folder,
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else (),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")
