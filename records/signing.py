"""Ed25519 keys and signatures of bundles. The only module that knows the library for them, which it
loads when asked; keys are files in PEM, public ones also a line of text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from records.errors import StoreUnavailable, UnusableLocation

PREFIX = "ed25519:"  # of a public key as text, before its 64 hexadecimal digits
PUBLIC = ".pub"  # what the public key's file has behind the private one's name
_LARGEST = 1 << 16  # bytes of a key's file


def _library() -> Any:
    """The library's Ed25519; raises StoreUnavailable where it is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise StoreUnavailable(
            "signatures need a library: pip install 'tilewright[share]'"
        ) from None
    return ed25519


def make_key(path: Path) -> str:
    """Write a new private key, for its owner's eyes alone, and the public one beside it, which is
    returned as text. Raises UnusableLocation for a file that is there, StoreUnavailable."""
    private = _library().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as form

    secret = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    shared = private.public_key().public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )
    for place, data, mode in ((path, secret, 0o600), (_beside(path), shared, 0o644)):
        try:
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(data)
        except OSError as error:
            raise UnusableLocation(
                f"cannot write the key {place} ({error.strerror}): name another file"
            ) from None
    return _text(private.public_key())


def _beside(path: Path) -> Path:
    return path.with_name(path.name + PUBLIC)


def sign(path: Path, data: bytes) -> tuple[bytes, str]:
    """The signature of `data` by the private key in a file, and the public key as text.

    Raises UnusableLocation for what is no such key.
    """
    library = _library()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(_content(path), None)
    except (ValueError, TypeError):  # TypeError: it has a password
        private = None
    if not isinstance(private, library.Ed25519PrivateKey):
        raise UnusableLocation(f"{path} holds no private Ed25519 key: `db keygen` makes one")
    return private.sign(data), _text(private.public_key())


def public_key(given: str) -> str:
    """A public key as text, of such a text or of a file in PEM; raises UnusableLocation."""
    library = _library()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        if given.startswith(PREFIX):
            raw = bytes.fromhex(given.removeprefix(PREFIX))
            return _text(library.Ed25519PublicKey.from_public_bytes(raw))
        found = load_pem_public_key(_content(Path(given)))
    except ValueError:
        found = None
    if not isinstance(found, library.Ed25519PublicKey):
        raise UnusableLocation(
            f"{given} is no public Ed25519 key: give {PREFIX} with 64 digits, or the file that "
            f"`db keygen` wrote ({PUBLIC})"
        )
    return _text(found)


def is_signed(key: str, signature: bytes, data: bytes) -> bool:
    """Whether `signature` is that of `data` by the owner of a public key, given as text."""
    library = _library()
    from cryptography.exceptions import InvalidSignature

    owner = library.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix(PREFIX)))
    try:
        owner.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _text(key: Any) -> str:
    return f"{PREFIX}{key.public_bytes_raw().hex()}"


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise OSError(0, "there is no such file")
        with open(path, "rb") as stream:
            return stream.read(_LARGEST)
    except OSError as error:
        raise UnusableLocation(f"cannot read the key {path} ({error.strerror})") from None
