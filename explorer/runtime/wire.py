"""Messages between a parent and its worker processes: length-prefixed pickles over a socket.

Knows sockets and deadlines; not what the messages say.
"""

from __future__ import annotations

import pickle
import socket
import struct
import time
from typing import Any

SPAWN, END = b"S", b"E"  # what a process server is asked
FRAME = struct.Struct("<cqq")  # one of both, a number that the answer repeats, and a value
_HEADER = struct.Struct("<Q")
_LARGEST = 1 << 34
_SOON = 0.001  # seconds that what fits the socket's buffer takes at most


class Closed(Exception):
    """The other end is gone."""


class Late(Exception):
    """The deadline passed before the whole message came."""


def send(channel: socket.socket, message: object, deadline: float | None = None) -> None:
    """Send one message; raises Closed or, after `deadline` (a monotonic time), Late."""
    data = pickle.dumps(message, protocol=5)
    try:
        channel.settimeout(None if deadline is None else max(_SOON, deadline - time.monotonic()))
        channel.sendall(_HEADER.pack(len(data)) + data)
    except TimeoutError:
        raise Late from None
    except OSError as error:
        raise Closed(str(error)) from None


def receive(channel: socket.socket, deadline: float | None = None) -> Any:
    """The next message; raises Closed or, after `deadline` (a monotonic time), Late.

    What has come is read however late it is: this process may have been stopped meanwhile.
    """
    size = _HEADER.unpack(_exactly(channel, _HEADER.size, deadline))[0]
    if size > _LARGEST:
        raise Closed(f"message of {size} bytes: the worker is writing garbage")
    return pickle.loads(_exactly(channel, size, deadline))


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            channel.settimeout(left)
            got = channel.recv_into(view[have:])
        except (TimeoutError, BlockingIOError):
            raise Late from None
        except OSError as error:
            raise Closed(str(error)) from None
        if not got:
            raise Closed("end of stream")
        have += got
    return data
