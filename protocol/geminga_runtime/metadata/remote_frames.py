"""What a metadata store's server and its clients say to each other: frames of four bytes of length
and a pair, in MessagePack, of the request's number and one of the structs below.

Both are of one version of Geminga and on one machine: there is no negotiation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from geminga_protocol.bookkeeper.framing import LENGTH_BYTES, FrameCutter, WireError
from geminga_runtime.metadata.api import (
    BadVersion,
    Change,
    MetadataError,
    NoNode,
    NotEmpty,
    SessionExpired,
    Stat,
    StoreUnavailable,
    ValueTooLarge,
)

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""A list of a million names fits."""

UNASKED = 0
"""The number of what the server says unasked; requests have others."""

KINDS = tuple(Change)
"""Changes are sent as their places in it."""

_ERRORS = {
    kind.__name__: kind
    for kind in (
        BadVersion,
        MetadataError,
        NoNode,
        NotEmpty,
        SessionExpired,
        StoreUnavailable,
        ValueTooLarge,
    )
}

StatFields = tuple[int, int, int, bool, bool]


class Get(msgspec.Struct, array_like=True, tag=1):
    """Answered by NodeFound or Done."""

    path: str


class Exists(msgspec.Struct, array_like=True, tag=2):
    """Answered by Is."""

    path: str


class Children(msgspec.Struct, array_like=True, tag=3):
    """Answered by Names."""

    path: str


class Put(msgspec.Struct, array_like=True, tag=4):
    """Answered by Made. An ephemeral node belongs to the connection's session."""

    path: str
    value: bytes
    expected_version: int | None
    ephemeral: bool
    sequential: bool


class Delete(msgspec.Struct, array_like=True, tag=5):
    """Answered by Done."""

    path: str
    expected_version: int | None


class Watch(msgspec.Struct, array_like=True, tag=6):
    """Changes at and beneath the prefix are sent from the answer on, which is Done."""

    prefix: str


class Unwatch(msgspec.Struct, array_like=True, tag=7):
    """Not answered."""

    prefix: str


class Ping(msgspec.Struct, array_like=True, tag=8):
    """Answered by Done."""


class Close(msgspec.Struct, array_like=True, tag=9):
    """Ends the session when all earlier requests are answered; then answered by Done."""


class Done(msgspec.Struct, array_like=True, tag=21):
    """It was done, or there is no such node."""


class NodeFound(msgspec.Struct, array_like=True, tag=22):
    """A node."""

    value: bytes
    stat: StatFields


class Is(msgspec.Struct, array_like=True, tag=23):
    """Whether there is a node."""

    there: bool


class Names(msgspec.Struct, array_like=True, tag=24):
    """Children."""

    names: list[str]


class Made(msgspec.Struct, array_like=True, tag=25):
    """A node was written."""

    path: str
    stat: StatFields


class Refused(msgspec.Struct, array_like=True, tag=26):
    """An error of `geminga_runtime.metadata.api`, by its class's name."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: MetadataError) -> Refused:
        """As the error, or as the one that it is a kind of."""
        known = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
        return cls(next(known), str(error))

    def error(self) -> MetadataError:
        """What it was made of."""
        return _ERRORS.get(self.kind, MetadataError)(self.text)


class Changed(msgspec.Struct, array_like=True, tag=27):
    """Changes, each a place in KINDS and a path."""

    changes: list[tuple[int, str]]


class Missed(msgspec.Struct, array_like=True, tag=28):
    """Changes were not sent, since the client didn't take what was sent before."""


Request = Get | Exists | Children | Put | Delete | Watch | Unwatch | Ping | Close
Answer = Done | NodeFound | Is | Names | Made | Refused
Told = Changed | Missed

Content = TypeVar("Content")

_pack_length = struct.Struct(">I").pack
_encode = msgspec.msgpack.Encoder().encode


def encode(number: int, content: Request | Answer | Told) -> bytes:
    """A frame."""
    body = _encode((number, content))
    return _pack_length(len(body)) + body


class Frames(Generic[Content]):
    """Reads the frames of one side of a connection, received in any chunks."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[tuple[int, Content]]) -> None:
        self._decoder = decoder
        self._cutter = FrameCutter(FRAME_BYTES_MAX)

    def feed(self, data: bytes) -> Iterator[tuple[int, Content, int]]:
        """The frames that are whole now: number, content and size in bytes. Raises WireError."""
        buffer, bounds = self._cutter.feed(data)
        view = memoryview(buffer)
        start = bounds[0]
        for stop in bounds[1:]:
            try:
                number, content = self._decoder.decode(view[start + LENGTH_BYTES : stop])
            except msgspec.MsgspecError as error:
                raise WireError(f"a frame that isn't one: {error}") from None
            yield number, content, stop - start
            start = stop
        if self._cutter.failure is not None:
            raise self._cutter.failure


def requests() -> Frames[Request]:
    """For a server."""
    return Frames(msgspec.msgpack.Decoder(tuple[int, Request]))


def answers() -> Frames[Answer | Told]:
    """For a client."""
    return Frames(msgspec.msgpack.Decoder(tuple[int, Answer | Told]))


def fields_of(stat: Stat) -> StatFields:
    """The stat as it is sent."""
    return stat.version, stat.ctime_ms, stat.mtime_ms, stat.ephemeral, stat.created_by_self
