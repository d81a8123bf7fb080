"""What a metadata store's server and its clients say to each other, in `message_frames`."""

from __future__ import annotations

import msgspec

from geminga_runtime.message_frames import Decoder, Frames
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


class PutAll(msgspec.Struct, array_like=True, tag=10):
    """Answered by Versions. Each write has a path, a value and a version."""

    writes: list[tuple[str, bytes, int]]


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
    path: str = ""

    @classmethod
    def of(cls, error: MetadataError) -> Refused:
        """As the error, or as the one that it is a kind of."""
        known = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
        path = error.path if isinstance(error, BadVersion) else ""
        return cls(next(known), str(error), path)

    def error(self) -> MetadataError:
        """What it was made of."""
        kind = _ERRORS.get(self.kind, MetadataError)
        return BadVersion(self.text, self.path) if kind is BadVersion else kind(self.text)


class Versions(msgspec.Struct, array_like=True, tag=29):
    """Nodes were written."""

    versions: list[int]


class Changed(msgspec.Struct, array_like=True, tag=27):
    """Changes, each a place in KINDS and a path."""

    changes: list[tuple[int, str]]


class Missed(msgspec.Struct, array_like=True, tag=28):
    """Changes were not sent, since the client didn't take what was sent before."""


Request = Get | Exists | Children | Put | PutAll | Delete | Watch | Unwatch | Ping | Close
Answer = Done | NodeFound | Is | Names | Made | Versions | Refused
Told = Changed | Missed


def requests() -> Frames[Request]:
    """For a server."""
    return Frames(Decoder(tuple[int, Request]), FRAME_BYTES_MAX)


def answers() -> Frames[Answer | Told]:
    """For a client."""
    return Frames(Decoder(tuple[int, Answer | Told]), FRAME_BYTES_MAX)


def fields_of(stat: Stat) -> StatFields:
    """The stat as it is sent."""
    return stat.version, stat.ctime_ms, stat.mtime_ms, stat.ephemeral, stat.created_by_self
