"""Messages between a parent and its worker processes: length-prefixed pickles over a socket.

Knows sockets and deadlines; not what the messages say.
"""

from __future__ import annotations

import pickle
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct("<Q")
_LARGEST = 1 << 34


class Closed(Exception):
    """The other end is gone."""


class Late(Exception):
    """The deadline passed before the whole message came."""


def send(channel: socket.socket, message: object) -> None:
    """Send one message; raises Closed."""
    data = pickle.dumps(message, protocol=5)
    try:
        channel.settimeout(None)
        channel.sendall(_HEADER.pack(len(data)) + data)
    except OSError as error:
        raise Closed(str(error)) from None


def receive(channel: socket.socket, deadline: float | None = None) -> Any:
    """The next message; raises Closed or, after `deadline` (a monotonic time), Late."""
    size = _HEADER.unpack(_exactly(channel, _HEADER.size, deadline))[0]
    if size > _LARGEST:
        raise Closed(f"message of {size} bytes: the worker is writing garbage")
    return pickle.loads(_exactly(channel, size, deadline))


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise Late
        try:
            channel.settimeout(left)
            got = channel.recv_into(view[have:])
        except TimeoutError:
            raise Late from None
        except OSError as error:
            raise Closed(str(error)) from None
        if not got:
            raise Closed("end of stream")
        have += got
    return data
