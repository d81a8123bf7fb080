"""What the parent and a broker's process say to each other, in `message_frames`.

Numbers of frames have no meaning here. The sockets' file descriptors are inherited.
"""

from __future__ import annotations

import socket

import msgspec
import trio

from geminga_broker.config import BrokerConfig
from geminga_runtime.message_frames import Decoder, Frames, encode
from geminga_runtime.observing.log_setup import LogSettings
from geminga_runtime.stream import FramedStream

FRAME_BYTES_MAX = 1 << 20


class Descriptors(msgspec.Struct, array_like=True):
    """File descriptors that a broker inherits. Of listening sockets its own one is the first, that
    of the service's address the second; there are none where there is no such port.
    """

    metadata: int
    bookie: int
    broker: list[int]
    broker_tls: list[int]
    web: list[int]
    web_tls: list[int]


class Begin(msgspec.Struct, array_like=True, tag=1):
    """To a broker: serve."""

    name: str
    """Stands in the lines of its log."""
    logs: LogSettings
    config: BrokerConfig
    descriptors: Descriptors


class Stop(msgspec.Struct, array_like=True, tag=2):
    """To a broker: stop, as by a signal."""


class Serving(msgspec.Struct, array_like=True, tag=3):
    """To the parent: all is open. The broker's own addresses."""

    urls: list[str]


class Refused(msgspec.Struct, array_like=True, tag=4):
    """To the parent: it can't start, in one sentence."""

    text: str


ToBroker = Begin | Stop
ToParent = Serving | Refused


def to_broker() -> Frames[ToBroker]:
    """For a broker."""
    return Frames(Decoder(tuple[int, ToBroker]), FRAME_BYTES_MAX)


def to_parent() -> Frames[ToParent]:
    """For the parent."""
    return Frames(Decoder(tuple[int, ToParent]), FRAME_BYTES_MAX)


def message(content: ToBroker | ToParent) -> bytes:
    """Its frame."""
    return encode(0, content)


def stream_of(end: socket.socket, name: str) -> FramedStream:
    """The stream over one end of a pair of sockets."""
    return FramedStream(trio.SocketStream(trio.socket.from_stdlib_socket(end)), name=name)
