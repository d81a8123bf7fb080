"""What a bookie and its clients on the same machine say to each other, in `message_frames`.

BookKeeper's wire protocol has a request and an answer for each entry. Here an add is a run of
entries, and so is what a read finds: it costs the same for one entry as for a hundred.
"""

from __future__ import annotations

import msgspec

from geminga_bookie import errors
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import ADD_BYTES_MAX
from geminga_runtime.message_frames import Decoder, Frames

FRAME_BYTES_MAX = 2 * ADD_BYTES_MAX
"""An add of the largest size fits, whatever number of entries it has."""

_ERRORS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BookkeeperError)
}


class Add(msgspec.Struct, array_like=True, tag=1):
    """Answered by Added and AddFailed, for parts of the run."""

    ledger_id: int
    master_key: bytes
    first_entry_id: int
    packets: list[bytes]
    recovery: bool


class Read(msgspec.Struct, array_like=True, tag=2):
    """Answered by Packets."""

    ledger_id: int
    first_entry_id: int
    entries_max: int
    bytes_max: int


class Fence(msgspec.Struct, array_like=True, tag=3):
    """Answered by Lac."""

    ledger_id: int
    master_key: bytes


class ReadLac(msgspec.Struct, array_like=True, tag=4):
    """Answered by Lac."""

    ledger_id: int


class WriteLac(msgspec.Struct, array_like=True, tag=5):
    """Answered by Done."""

    ledger_id: int
    master_key: bytes
    lac: int
    packet: bytes


class LastEntry(msgspec.Struct, array_like=True, tag=6):
    """Answered by Packets with one."""

    ledger_id: int


class WaitEntry(msgspec.Struct, array_like=True, tag=7):
    """Answered by Waited."""

    ledger_id: int
    entry_id: int
    previous_lac: int


class Force(msgspec.Struct, array_like=True, tag=8):
    """Answered by Done."""

    ledger_id: int


class ListEntries(msgspec.Struct, array_like=True, tag=9):
    """Answered by Ids."""

    ledger_id: int


class Info(msgspec.Struct, array_like=True, tag=10):
    """Answered by Space."""


class Cancel(msgspec.Struct, array_like=True, tag=11):
    """Nobody waits for the answer to the request of that number any more. Not answered."""


class Added(msgspec.Struct, array_like=True, tag=21):
    """So many entries are durable."""

    first_entry_id: int
    entries: int


class AddFailed(msgspec.Struct, array_like=True, tag=22):
    """So many entries are not."""

    first_entry_id: int
    entries: int
    kind: str
    text: str


class Done(msgspec.Struct, array_like=True, tag=23):
    """It is done."""


class Packets(msgspec.Struct, array_like=True, tag=24):
    """Entries."""

    packets: list[bytes]


class Lac(msgspec.Struct, array_like=True, tag=25):
    """See `LacAnswer`."""

    last_packet: bytes | None
    explicit_packet: bytes | None


class Waited(msgspec.Struct, array_like=True, tag=26):
    """What `BookiePort.wait_entry` returns."""

    packet: bytes | None
    lac: int


class Ids(msgspec.Struct, array_like=True, tag=27):
    """Ids of entries."""

    ids: list[int]


class Space(msgspec.Struct, array_like=True, tag=28):
    """See `BookieInfo`."""

    total_bytes: int
    free_bytes: int
    read_only: str = ""


class Refused(msgspec.Struct, array_like=True, tag=29):
    """An error of `geminga_bookie.errors`, by its class's name."""

    kind: str
    text: str


Call = Read | Fence | ReadLac | WriteLac | LastEntry | WaitEntry | Force | ListEntries | Info
Request = Add | Call | Cancel
Result = Done | Packets | Lac | Waited | Ids | Space | Refused
Answer = Added | AddFailed | Result


def requests() -> Frames[Request]:
    """For the bookie."""
    return Frames(Decoder(tuple[int, Request]), FRAME_BYTES_MAX)


def answers() -> Frames[Answer]:
    """For its client."""
    return Frames(Decoder(tuple[int, Answer]), FRAME_BYTES_MAX)


def kind_of(error: BookkeeperError) -> str:
    """The name of the error's class, or of the one that it is a kind of."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)


def error_of(kind: str, text: str) -> BookkeeperError:
    """The error of that name."""
    return _ERRORS.get(kind, BookkeeperError)(text)
