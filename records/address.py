"""Where a store is: a path or a URL, as a value that never shows the secrets it was given.

Whatever prints, compares, copies or keeps an address sees its redacted form. Only the connection
asks for the secrets. It knows which databases there are, and opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, quote_plus

from records.errors import UnusableLocation

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

MEMORY = ":memory:"
HIDDEN = "***"
_DRIVER = "postgresql+psycopg"
# What of a query is no secret for certain; whatever else stands there is hidden.
_HARMLESS = frozenset(
    (
        *("host", "hostaddr", "port", "user", "sslmode", "connect_timeout", "application_name"),
        *("target_session_attrs", "load_balance_hosts", "channel_binding", "client_encoding"),
    )
)
_SEARCH_PATH = re.compile(r'(\s*-c\s*search_path=[\w,"]+)+\s*')
_SECRET_WORD = re.compile(r"(?i)(password|passwd|pwd)\s*=")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_HALF_URL = re.compile(r"(?i)(postgres(ql)?|mysql|mariadb|oracle|mssql)(\+\w+)?:")
_LEAST_SCRUBBED = 4  # letters: replacing a shorter secret would garble the text, and so tell it

Secrets = Mapping[str, Any]


class Address:
    """The address of a store: frozen, equal to another of the same redacted form.

    `str`, `repr`, `format`, copies, pickles and JSON carry `shown` alone. One that is made of a
    redacted form opens its store if a password file or `PGPASSWORD` knows the password.
    """

    __slots__ = ("_secrets", "file", "server", "shown")

    shown: str
    file: str | None  # its name as given, None for a server
    server: URL | None  # without secrets
    _secrets: Callable[[], Secrets]  # a function, so that nothing that walks values finds them

    def __init__(
        self, shown: str, *, file: str | None = None, server: URL | None = None, secrets: Secrets
    ) -> None:
        values = {"shown": shown, "file": file, "server": server, "_secrets": lambda: secrets}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, where: str | os.PathLike[str] | Address) -> Address:
        """The address that a path or a URL stands for; raises UnusableLocation, without secrets."""
        if isinstance(where, Address):
            return where
        text = os.fspath(where)
        if not isinstance(text, str) or not text or "\0" in text:
            raise UnusableLocation("records location is no path: give a file or a URL")
        return _of_url(text) if "://" in text else _of_path(text)

    @property
    def path(self) -> Path | None:
        """The file, None for a database in memory or on a server."""
        if self.file in (None, MEMORY):
            return None
        return Path(str(self.file)).expanduser().absolute()

    @property
    def memory(self) -> bool:
        """Whether the store ends with its process."""
        return self.file == MEMORY

    @property
    def there(self) -> bool:
        """Whether there is something to open; a server is taken to be there."""
        return self.path is None or self.path.exists()

    def within(self, folder: Path) -> Address:
        """A relative path as seen from where `folder` is; anything else as it is."""
        if self.file is None or self.memory:
            return self
        return Address.of(str(folder / Path(self.file).expanduser()))

    def secrets(self) -> dict[str, Any]:
        """What the driver needs besides `url`, by its names. For the connection alone."""
        return dict(self._secrets())

    def scrub(self, text: str) -> str:
        """`text` without the secrets, however they are encoded."""
        for secret in self._secrets().values():
            for found in sorted(_encodings(str(secret)), key=len, reverse=True):
                if len(found) < _LEAST_SCRUBBED and found in text:
                    return HIDDEN
                text = re.sub(re.escape(found), HIDDEN, text, flags=re.IGNORECASE)
        return text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    def __format__(self, spec: str) -> str:
        return format(self.shown, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self.shown == other.shown

    def __hash__(self) -> int:
        return hash(self.shown)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to {name!r}: an Address is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name!r}: an Address is frozen")

    def __copy__(self) -> Address:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Address:
        return self

    def __reduce__(self) -> tuple[Callable[[str], Address], tuple[str]]:
        return Address.of, (self.shown,)


def _of_path(text: str) -> Address:
    if _SECRET_WORD.search(text) or _HALF_URL.match(text):
        raise UnusableLocation(
            "records location is neither a path nor a URL: write a server's as "
            "postgresql://user@host/database"
        )
    return Address(text, file=text, secrets={})


def _of_url(text: str) -> Address:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    kind = text.partition("://")[0]
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        backend = ""
    if backend not in ("sqlite", "postgresql"):
        named = f"{kind}://..." if _SCHEME.fullmatch(kind) else "of this kind"
        raise UnusableLocation(
            f"records location {named} is not supported: give a file, a sqlite:/// or a "
            "postgresql:// URL"
        )
    if backend == "sqlite":
        return _of_path(url.database or MEMORY)
    _refuse_ambiguous(text, url)
    return _of_server(url.set(drivername=_DRIVER) if url.drivername == "postgresql" else url)


def _refuse_ambiguous(text: str, url: URL) -> None:
    """A sign that was not encoded would make part of a password the name of a host."""
    place = text.partition("://")[2].partition("?")[0]
    if place.count("@") > 1 or "@" in (url.host or ""):
        raise UnusableLocation(
            "records location: the user or password holds a sign that means something else in a "
            "URL: write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25"
        )
    if "@" in (url.database or "") or re.search(r"://|=|#", url.database or ""):
        raise UnusableLocation(
            "records location: what stands for the database is no name; write @ in a password as "
            "%40, / as %2F and ? as %3F"
        )


def _of_server(url: URL) -> Address:
    from sqlalchemy.engine import URL

    plain = {name: value for name, value in url.query.items() if _is_harmless(name, value)}
    secrets = {name: value for name, value in url.query.items() if name not in plain}
    if url.password is not None:
        secrets["password"] = str(url.password)
    public = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, plain)
    hidden = {name: HIDDEN for name in url.query if name not in plain}
    shown = public.set(
        password=HIDDEN if url.password is not None else None, query={**plain, **hidden}
    ).render_as_string(hide_password=True)
    shown = shown.replace(f"{_DRIVER}://", "postgresql://", 1).replace(quote_plus(HIDDEN), HIDDEN)
    known = {name: value for name, value in secrets.items() if value != HIDDEN}
    return Address(shown, server=public, secrets=known)


def _is_harmless(name: str, value: str | tuple[str, ...]) -> bool:
    texts = (value,) if isinstance(value, str) else value
    if name == "options":
        return all(_SEARCH_PATH.fullmatch(text) for text in texts)
    return name in _HARMLESS and not any("@" in text or "=" in text for text in texts)


def _encodings(secret: str) -> set[str]:
    """The forms in which a secret may stand in a driver's text, but for the empty one."""
    forms = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}
    forms |= {repr(secret)[1:-1], " ".join(secret.split())}
    return forms - {""}
