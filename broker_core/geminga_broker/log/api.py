"""The managed ledger and its cursors, as topics use them (spec BR-01 to BR-07).

Everything synchronous here runs in the broker's loop and takes effect before it returns; durability
comes by callback or by awaiting. `Entry.data` is what stands in the ledger: broker entry metadata
(if the log adds it) and the payload part of the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata


class LogError(Exception):
    """Base of managed ledger errors."""


class LogFenced(LogError):
    """Another broker owns the log now; this one must be given up."""


class LogTerminated(LogError):
    """No more entries are taken; `last_position` is the end."""


class LogClosed(LogError):
    """The log was closed or deleted here."""


class CursorNotFound(LogError):
    """No cursor of that name."""


class LogNotFound(LogError):
    """There is no log of that name, and none was to be made."""


class LogReadFailed(LogError):
    """An entry that must be there can't be read now; the text gives the cause."""


class EntryDamaged(LogReadFailed):
    """An entry among those asked for is damaged or lost: trying again doesn't help."""


class LogWriteFailed(LogError):
    """Storage refused or failed; nothing of the run is acknowledged. The text gives the cause."""


AppendDone = Callable[[Position, int, LogError | None], None]
"""(first position, count, error): consecutive entries of one ledger are durable, or failed. Called
in order of appends;
one append may be answered by several runs, several appends by one call each."""


class Entry(Protocol):
    """One stored entry. `metadata` and what follows from it are parsed once, on first use."""

    position: Position
    data: memoryview

    @property
    def size(self) -> int:
        """Bytes of `data`."""

    @property
    def messages(self) -> int:
        """Messages in its batch, 1 when it is none."""

    @property
    def metadata(self) -> MessageMetadata:
        """The message metadata. Raises RemoteProtocolError if the entry holds none."""

    @property
    def special(self) -> MessageMetadata | None:
        """The metadata if the entry may be a marker, delayed or a chunk; None for all others."""

    @property
    def broker_metadata(self) -> BrokerEntryMetadata | None:
        """What the broker stored with the entry: append time and message index (PR-03)."""

    @property
    def time_ms(self) -> int:
        """When it was published: the broker's time if that is stored, else the producer's."""


class Ack(NamedTuple):
    """An individual acknowledgement. `ack_set` holds the BitSet words of what is *still
    unacknowledged*, empty: all is acked.

    A tuple, because one is made for every acknowledged entry.
    """

    position: Position
    ack_set: tuple[int, ...] = ()
    batch_size: int = 1


class CursorStatistics(NamedTuple):
    """How a cursor stands."""

    name: str
    durable: bool
    active: bool
    mark_delete: Position
    read_position: Position
    holes: int
    backlog_entries: int
    cursor_properties: Mapping[str, str]


class LedgerStatistics(NamedTuple):
    """One ledger of a log; `closed_ms` is 0 while it is open."""

    ledger_id: int
    entries: int
    size_bytes: int
    closed_ms: int


class LogStatistics(NamedTuple):
    """How a log stands; `state` is one of open, rolling, no ledger, terminated, fenced, closed."""

    state: str
    entries: int
    size_bytes: int
    last_position: Position
    ledgers: tuple[LedgerStatistics, ...]
    cached_bytes: int
    opened_s_ago: float = 0.0
    """How long ago the open ledger was made."""


class EntryCursor(Protocol):
    """What a subscription dispatches from: it reads, and acknowledges what was read. Mark-delete:
    every entry up to it is acknowledged.
    """

    name: str
    read_position: Position
    fetched: tuple[int, int]
    """Entries and bytes that its reads took from ledgers, past the cache."""

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
        """Entries at these positions (replay), in order, leaving out those deleted meanwhile."""

    def rewind(self) -> None:
        """Read again from the mark-delete position."""

    def is_deleted(self, position: Position) -> bool:
        """Whether the entry is acknowledged, by mark-delete or individually."""

    def ack_set(self, position: Position) -> tuple[int, ...]:
        """BitSet words of a batch's unacknowledged messages; empty if no part is acknowledged."""

    def ack(self, acks: Iterable[Ack]) -> list[Position]:
        """Acknowledge individually; returns what is now wholly acknowledged. Others are ignored."""

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
        """Go with mark-delete and are persisted with it."""

    @property
    def cursor_properties(self) -> Mapping[str, str]:
        """Properties of the subscription."""

    def on_available(self, wake: Callable[[], None] | None) -> None:
        """Call `wake` (synchronously, once per completed run) whenever new entries can be read.

        A cursor is active, and the cache filled for it, until `wake` is None, and a little longer.
        """

    async def persist(self) -> None:
        """Return when what was acknowledged before the call is durable."""

    async def seek(self, position: Position) -> None:
        """Read `position` next; holes and batch states beyond it go. Durable on return (BR-07)."""

    async def skip(self, entries: int) -> None:
        """Move mark-delete over that many entries."""

    def backlog_entries(self) -> int:
        """Entries between mark-delete and the end that are not acknowledged."""

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties; durable on return."""

    def statistics(self) -> CursorStatistics:
        """A snapshot."""


class ManagedLedger(Protocol):
    """A topic's log: a chain of ledgers with one open."""

    name: str

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """Open cursors by name, readers' too."""

    @property
    def properties(self) -> Mapping[str, str]:
        """What is kept with the log's metadata."""

    async def set_property(self, key: str, value: str) -> None:
        """Keep it with the log's metadata; durable on return. Raises LogError."""

    @property
    def last_position(self) -> Position:
        """The last durable entry; (ledger, -1) if there was none yet."""

    @property
    def terminated(self) -> bool:
        """Whether it takes no more entries."""

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """Append entries, each given as (payload part, messages in it). Buffers are copied before
        this returns.

        Never blocks; a refusal (fenced, terminated, closed, storage full) goes to `done` before
        this returns, or behind the answers to earlier appends. While a ledger rolls over,
        entries wait in a queue bounded by the callers' own limits.
        """

    async def settled(self) -> None:
        """Return when all that was appended before is durable or refused."""

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """The durable cursor; a new one starts after `initial` (EARLIEST, LATEST or any)."""

    def open_reader(self, name: str, start: Position) -> Cursor:
        """A non-durable cursor that reads from `start` on (LATEST: from what comes next)."""

    async def delete_cursor(self, name: str) -> None:
        """Raises CursorNotFound."""

    async def read_range(
        self, first: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry]:
        """Entries from a position on, whatever the cursors say."""

    async def find_by_time(self, timestamp_ms: int) -> Position:
        """First position published at or after the timestamp, by binary search (BR-07)."""

    def next_position(self, position: Position) -> Position:
        """The position after, in the next ledger with entries; at the end the next written."""

    def previous_position(self, position: Position) -> Position:
        """The position before; (first ledger, -1) at the beginning."""

    def entries_between(self, after: Position, upto: Position) -> int:
        """How many entries lie in (after, upto]."""

    async def terminate(self) -> Position:
        """Take no more entries; returns the last position. Durable and idempotent."""

    async def trim(self) -> None:
        """Delete ledgers that every cursor passed and retention lets go (BR-04)."""

    async def truncate(self) -> None:
        """Begin a new ledger, and delete those that every cursor passed, whatever retention says
        (ManagedLedgerImpl.asyncTruncate).
        """

    async def roll(self) -> None:
        """Close the open ledger and open the next, if it has entries (BR-02)."""

    async def close(self) -> None:
        """Persist cursors, close the open ledger. Idempotent."""

    async def delete(self) -> None:
        """Delete all ledgers, cursors and metadata."""

    def statistics(self) -> LogStatistics:
        """A snapshot."""
