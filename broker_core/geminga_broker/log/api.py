"""The managed ledger and its cursors, as topics use them (spec BR-01 to BR-07).

Synchronous methods run in the broker's loop and take effect before they return; durability is
reported by a callback or by awaiting. `Entry.data` has the bytes as in the ledger: broker entry
metadata (if the log adds it) and the payload part of the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, overload

from geminga_broker.metrics.log_meter import LogMeter
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata


class LogError(Exception):
    """Base of managed ledger errors."""


class LogFenced(LogError):
    """Another broker owns the log now; this object is unusable."""


class LogTerminated(LogError):
    """The log accepts no more entries; `last_position` is the end."""


class LogClosed(LogError):
    """The log was closed or deleted here."""


class CursorNotFound(LogError):
    """No cursor of that name."""


class LogNotFound(LogError):
    """No log of that name exists, and the caller did not allow to create it."""


class LogReadFailed(LogError):
    """An existing entry can't be read now; the text gives the cause."""


class TooFewBookies(LogReadFailed):
    """A log can't be opened now, as its next ledger needs more bookies than are writable: somebody
    has to start some, or to ask for fewer copies.
    """


class EntryDamaged(LogReadFailed):
    """A requested entry is damaged or lost: a retry doesn't help."""


class LogWriteFailed(LogError):
    """The storage failed; no entry of the run is acknowledged. The text gives the cause."""


AppendDone = Callable[[Position, int, LogError | None], None]
"""(first position, count, error): consecutive entries of one ledger are durable, or failed. Called
in the order of appends, once or several times for each append."""


class Entry(Protocol):
    """One stored entry. Its metadata are parsed on first use; small ones are kept."""

    position: Position
    data: memoryview

    @property
    def size(self) -> int:
        """Bytes of `data`."""

    @property
    def messages(self) -> int:
        """Messages in its batch; 1 if it is not a batch."""

    @property
    def metadata(self) -> MessageMetadata:
        """All of the message metadata. Raises RemoteProtocolError if the entry holds none."""

    @property
    def head(self) -> MessageMetadata:
        """The metadata without properties and clusters, and with at most one (empty) encryption
        key; fast however many there are. Raises RemoteProtocolError if the entry holds none.
        """

    @property
    def special(self) -> MessageMetadata | None:
        """`head` if the entry may be a marker, delayed or a chunk; None for all others."""

    @property
    def broker_metadata(self) -> BrokerEntryMetadata | None:
        """The broker's metadata of the entry: append time and message index (PR-03)."""

    @property
    def time_ms(self) -> int:
        """The publish time: the broker's if stored, else the producer's."""


class Ack(NamedTuple):
    """An individual acknowledgement. `ack_set`: BitSet words of the *still unacknowledged*
    messages; empty: all are acknowledged.

    A tuple, because one is made for every acknowledged entry.
    """

    position: Position
    ack_set: tuple[int, ...] = ()
    batch_size: int = 1


class AckRun(Sequence[Ack]):
    """Individual acknowledgements of consecutive whole entries of a ledger."""

    __slots__ = ("entries", "first", "ledger_id")

    def __init__(self, ledger_id: int, first: int, entries: int) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.entries = entries

    def __len__(self) -> int:
        return self.entries

    @overload
    def __getitem__(self, index: int) -> Ack: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Ack]: ...
    def __getitem__(self, index: int | slice) -> Ack | Sequence[Ack]:
        entry_ids = range(self.first, self.first + self.entries)
        if isinstance(index, slice):
            return [Ack(Position(self.ledger_id, entry_id)) for entry_id in entry_ids[index]]
        return Ack(Position(self.ledger_id, entry_ids[index]))

    def __iter__(self) -> Iterator[Ack]:
        ledger_id = self.ledger_id
        for entry_id in range(self.first, self.first + self.entries):
            yield Ack(Position(ledger_id, entry_id))


class CursorStatistics(NamedTuple):
    """The state of a cursor."""

    name: str
    durable: bool
    active: bool
    mark_delete: Position
    read_position: Position
    holes: int
    backlog_entries: int
    cursor_properties: Mapping[str, str]
    written: Position | None = None
    """The last entry that its state is in; None without an open ledger."""


class LedgerStatistics(NamedTuple):
    """One ledger of a log; `closed_ms` is 0 while it is open."""

    ledger_id: int
    entries: int
    size_bytes: int
    closed_ms: int


class LogStatistics(NamedTuple):
    """State of a log; `state` is one of open, rolling, no ledger, terminated, fenced, closed."""

    state: str
    entries: int
    size_bytes: int
    last_position: Position
    ledgers: tuple[LedgerStatistics, ...]
    cached_bytes: int
    opened_s_ago: float = 0.0
    """Seconds since the open ledger was created."""


class EntryCursor(Protocol):
    """The source of a subscription's dispatch: reads entries and acknowledges them."""

    name: str
    read_position: Position
    fetched: tuple[int, int]
    """Entries and bytes that its reads took from ledgers, not from the cache."""

    @property
    def mark_delete(self) -> Position:
        """Every entry up to it is acknowledged."""

    def available(self, upto: Position | None = None) -> bool:
        """Whether `read` would find an entry now."""

    async def read(
        self, *, entries_max: int, bytes_max: int, upto: Position | None = None
    ) -> Sequence[Entry]:
        """Next entries up to a last position, skipping individually deleted ones; moves
        `read_position`. Empty at the end. One caller at a time.

        Returns without suspending when the entries are in the cache.
        """

    async def read_at(self, positions: Sequence[Position]) -> Sequence[Entry]:
        """Entries at these positions (replay), in order, without those deleted meanwhile."""

    def rewind(self) -> None:
        """Read again from the mark-delete position."""

    def is_deleted(self, position: Position) -> bool:
        """Whether the entry is acknowledged, by mark-delete or individually."""

    def ack_set(self, position: Position) -> tuple[int, ...]:
        """BitSet words of a batch's unacknowledged messages; empty if no part is acknowledged."""

    def ack(self, acks: Iterable[Ack]) -> list[Position]:
        """Acknowledge individually; returns the positions that are now wholly acknowledged."""

    def ack_run(self, run: AckRun) -> None:
        """Acknowledge neighbouring entries in one step; others are ignored."""

    def ack_cumulative(
        self,
        position: Position,
        ack_set: tuple[int, ...] = (),
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """Move mark-delete to the position (or before it, with a partially acknowledged batch).
        A position beyond the end changes nothing.
        """


class Cursor(EntryCursor, Protocol):
    """A subscription's place in the log."""

    @property
    def durable(self) -> bool:
        """Whether it is stored."""

    @property
    def properties(self) -> Mapping[str, int]:
        """Properties of the mark-delete position, persisted with it."""

    @property
    def cursor_properties(self) -> Mapping[str, str]:
        """Properties of the subscription."""

    def on_available(self, wake: Callable[[], None] | None) -> None:
        """Call `wake` (synchronously, once per completed run) whenever new entries can be read.

        A cursor is active, and the cache filled for it, until `wake` is None, and a little longer.
        """

    async def persist(self) -> None:
        """Return when earlier acknowledgements are durable."""

    async def seek(self, position: Position) -> None:
        """Read `position` next; forget holes and partial batches beyond. Durable (BR-07)."""

    async def skip(self, entries: int) -> None:
        """Move mark-delete over that many entries."""

    def unacked_at(self, number: int) -> Position | None:
        """The position of the unacknowledged entry with this number, from 1 on; None if there are
        fewer.
        """

    def backlog_entries(self) -> int:
        """Unacknowledged entries between mark-delete and the end."""

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties; durable on return."""

    def statistics(self) -> CursorStatistics:
        """A snapshot."""


class ManagedLedger(Protocol):
    """A topic's log: a chain of ledgers with one open."""

    name: str
    meter: LogMeter
    """What it counts; `appended` is for whoever appends."""

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """Open cursors by name, readers' too."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties stored with the log's metadata."""

    async def set_property(self, key: str, value: str) -> None:
        """Store a property with the log's metadata; durable on return. Raises LogError."""

    async def change_properties(
        self, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Replace the properties by those that `change` makes of them; durable on return. Raises
        LogError, and what `change` raises.
        """

    @property
    def last_position(self) -> Position:
        """The last durable entry; (ledger, -1) before the first."""

    @property
    def terminated(self) -> bool:
        """Whether the log accepts no more entries."""

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """Append entries, each given as (payload part, number of messages). Buffers are copied
        before this returns.

        Never blocks; an error (fenced, terminated, closed, storage full) goes to `done` before
        this returns, or after the results of earlier appends. While a ledger rolls over, entries
        wait in a queue; the callers bound it.
        """

    async def make_ready(self) -> None:
        """Return when the log takes appends, or its state refuses them for good; without a ledger
        make one, unless that failed just now. Raises LogWriteFailed with the reason.
        """

    async def settled(self) -> None:
        """Return when all earlier appends are durable or failed."""

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """Open or create a durable cursor; a new one starts after `initial` (EARLIEST, LATEST or
        any).
        """

    def open_reader(self, name: str, start: Position) -> Cursor:
        """A non-durable cursor that reads from `start` on (LATEST: only later entries)."""

    async def delete_cursor(self, name: str) -> None:
        """Raises CursorNotFound."""

    async def read_range(
        self, first: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry]:
        """Entries from a position on, regardless of cursors."""

    async def find_by_time(self, timestamp_ms: int) -> Position:
        """First position published at or after the timestamp, by binary search (BR-07)."""

    def next_position(self, position: Position) -> Position:
        """The position of the following entry, or of the next one to be written."""

    def previous_position(self, position: Position) -> Position:
        """The position of the preceding entry; (first ledger, -1) at the beginning."""

    def entries_between(self, after: Position, upto: Position) -> int:
        """How many entries lie in (after, upto]."""

    async def terminate(self) -> Position:
        """Accept no more entries; returns the last position. Durable and idempotent."""

    async def trim(self) -> None:
        """Delete ledgers that every cursor passed and retention doesn't keep (BR-04)."""

    async def truncate(self) -> None:
        """Begin a new ledger, and delete those that every cursor passed, regardless of retention
        (ManagedLedgerImpl.asyncTruncate).
        """

    async def roll(self) -> None:
        """Close the open ledger and open the next, if it has entries (BR-02)."""

    async def close(self) -> None:
        """Persist cursors, close the open ledger. Idempotent."""

    async def delete(self) -> None:
        """Delete all ledgers, cursors and metadata. After a failure the deletion may have begun:
        then it goes on later, whoever does it.
        """

    @property
    def size_bytes(self) -> int:
        """Bytes of its entries."""

    def statistics(self) -> LogStatistics:
        """A snapshot."""
