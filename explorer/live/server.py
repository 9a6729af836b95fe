"""The server of the live page: a few files, and answers from a store that is opened to be read.

HTTP by the standard library. It knows neither what the answers mean nor the command line.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socket import AF_INET6
from typing import Any
from urllib.parse import unquote, urlsplit

from explorer.live.answers import about, overview, version_of
from explorer.report.page import DRAW, LIBRARY, asset
from ir.errors import UsageError
from records import Address, Store, StoreError
from records.errors import UnknownJob

LOOPBACK = "127.0.0.1"
_POLICY = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'"
_NAMES = ("localhost", "127.0.0.1", "[::1]")  # by which a browser may call a server on loopback
_HTML, _JS, _JSON = "text/html", "text/javascript", "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to a browser."""

    body: bytes
    kind: str = _JSON
    status: HTTPStatus = HTTPStatus.OK
    etag: str = ""


class LiveServer(ThreadingHTTPServer):
    """Serves the page about the store at `where` from `host`, `port` (0: any that is free).

    Raises UsageError where that address cannot be had.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, where: Address, host: str = LOOPBACK, port: int = 0) -> None:
        self.where = where
        if ":" in host:
            self.address_family = AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"cannot serve on {host} port {port} ({why}): give another") from None

    @property
    def url(self) -> str:
        """Where a browser of this machine finds it."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def local(self) -> bool:
        """Whether it is reached from this machine alone."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def answer(self, path: str, seen: str) -> Answer:
        """What stands at `path`; nothing new for who has `seen` this version of it."""
        try:
            if path in _FILES:
                kind, text = _FILES[path]
                return Answer(text().encode(), kind)
            if path == "/api/jobs":
                return self._told(overview, seen)
            if path.startswith("/api/jobs/"):
                name = unquote(path.removeprefix("/api/jobs/"))
                return self._told(lambda store: about(store, name), seen)
        except UnknownJob as error:
            return _refused(HTTPStatus.NOT_FOUND, str(error))
        except StoreError as error:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return _refused(HTTPStatus.NOT_FOUND, "there is no such page")

    def _told(self, tell: Callable[[Store], Mapping[str, Any]], seen: str) -> Answer:
        """Opened anew for each: a store that is put in its place is met as it is."""
        with Store(self.where, read_only=True) as store:
            etag = f'"{hashlib.sha256(version_of(store).encode()).hexdigest()[:24]}"'
            if seen == etag:
                return Answer(b"", status=HTTPStatus.NOT_MODIFIED, etag=etag)
            return Answer(json.dumps(tell(store), allow_nan=False).encode(), etag=etag)


def _refused(status: HTTPStatus, why: str) -> Answer:
    return Answer(json.dumps({"error": why}).encode(), status=status)


def _own(name: str) -> str:
    return (files("explorer.live") / name).read_text(encoding="utf-8")


_FILES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "/": (_HTML, lambda: _own("live.html")),
    "/live.js": (_JS, lambda: _own("live.js")),
    "/draw.js": (_JS, lambda: asset(DRAW)),
    "/echarts.js": (_JS, lambda: asset(LIBRARY)),
}


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD; anything else is answered by 501. Says nothing on the terminal."""

    server: LiveServer
    protocol_version = "HTTP/1.1"
    server_version = "tilewright"
    sys_version = ""
    timeout = 30.0  # seconds that an idle connection may stay

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def _send(self, *, body: bool) -> None:
        seen = self.headers.get("If-None-Match", "")
        if self._called_otherwise():
            answer = _refused(HTTPStatus.FORBIDDEN, "this server answers to localhost alone")
        else:
            answer = self.server.answer(urlsplit(self.path).path, seen)
        self.send_response(answer.status)
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        if answer.etag:
            self.send_header("ETag", answer.etag)
        self.end_headers()
        if body:
            self.wfile.write(answer.body)

    def _called_otherwise(self) -> bool:
        """Whether a page from elsewhere has made its name lead here, to read what is local."""
        name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        return self.server.local and name not in (*_NAMES, str(self.server.server_address[0]))

    def log_message(self, format: str, *arguments: object) -> None:
        """The terminal is the person's."""
