"""A managed ledger in memory, as plain as can be: the oracle under topic tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

from geminga_broker.log.api import (
    Ack,
    AckRun,
    AppendDone,
    Buffer,
    CursorNotFound,
    CursorStatistics,
    LedgerStatistics,
    LogError,
    LogStatistics,
    LogTerminated,
)
from geminga_broker.log.entry import LogEntry
from geminga_broker.metrics.log_meter import LogMeter
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.payload import parse_metadata, peek_broker_entry_metadata
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

LEDGER = 7


def at(entry: int) -> Position:
    return Position(LEDGER, entry)


class FakeEntry:
    __slots__ = ("_metadata", "data", "messages", "position")

    def __init__(self, position: Position, data: bytes, messages: int) -> None:
        self.position = position
        self.data = memoryview(data)
        self.messages = messages
        self._metadata: MessageMetadata | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def metadata(self) -> MessageMetadata:
        if self._metadata is None:
            self._metadata = parse_metadata(self.data)
        return self._metadata

    @property
    def head(self) -> MessageMetadata:
        return self.metadata

    @property
    def special(self) -> MessageMetadata | None:
        return LogEntry(self.position, self.data).special

    @property
    def broker_metadata(self) -> BrokerEntryMetadata | None:
        return peek_broker_entry_metadata(self.data)

    @property
    def time_ms(self) -> int:
        return self.metadata.publish_time


class FakeCursor:
    def __init__(self, log: FakeLog, name: str, mark_delete: int, durable: bool) -> None:
        self.log = log
        self.name = name
        self.durable = durable
        self.deleted: set[int] = set()
        self.partial: dict[int, tuple[int, ...]] = {}
        self.marked = mark_delete
        self.next = mark_delete + 1
        self.properties: dict[str, int] = {}
        self.cursor_properties: dict[str, str] = {}
        self.wakes: Callable[[], None] | None = None
        self.fail_reads: list[LogError] = []
        self.fetched = (0, 0)

    @property
    def mark_delete(self) -> Position:
        return at(self.marked)

    @property
    def read_position(self) -> Position:
        return at(self.next)

    def available(self, upto: Position | None = None) -> bool:
        beyond = upto is not None and self.next > upto.entry_id
        return self.next < len(self.log.entries) and not beyond

    def on_available(self, wake: Callable[[], None] | None) -> None:
        self.wakes = wake

    async def read(
        self, *, entries_max: int, bytes_max: int, upto: Position | None = None
    ) -> list[FakeEntry]:
        await self.log.pause()
        if self.fail_reads:
            raise self.fail_reads.pop()
        found = []
        while len(found) < entries_max and self.available(upto):
            if not self.is_deleted(at(self.next)):
                found.append(self.log.entries[self.next])
            self.next += 1
        return found

    async def read_at(self, positions: Sequence[Position]) -> list[FakeEntry]:
        await self.log.pause()
        assert list(positions) == sorted(positions)
        return [self.log.entries[p.entry_id] for p in positions if not self.is_deleted(p)]

    def rewind(self) -> None:
        self.next = self.marked + 1

    def is_deleted(self, position: Position) -> bool:
        return position.entry_id <= self.marked or position.entry_id in self.deleted

    def ack_set(self, position: Position) -> tuple[int, ...]:
        return self.partial.get(position.entry_id, ())

    def ack_run(self, run: AckRun) -> None:
        self.ack(run)

    def ack(self, acks: Iterable[Ack]) -> list[Position]:
        done = []
        for ack in acks:
            entry = ack.position.entry_id
            if self.is_deleted(ack.position) or not 0 <= entry < len(self.log.entries):
                continue
            if ack.ack_set:
                before = self.partial.get(entry, ack.ack_set)
                self.partial[entry] = ack_sets.and_(before, ack.ack_set)
                if self.partial[entry]:
                    continue
            self.partial.pop(entry, None)
            self.deleted.add(entry)
            done.append(ack.position)
        while self.marked + 1 in self.deleted:
            self.marked += 1
            self.deleted.discard(self.marked)
        return done

    def ack_cumulative(
        self,
        position: Position,
        ack_set: tuple[int, ...] = (),
        properties: Mapping[str, int] | None = None,
    ) -> None:
        if properties is not None:
            self.properties = dict(properties)
        upto = min(position.entry_id, len(self.log.entries) - 1) - (1 if ack_set else 0)
        if ack_set:
            self.partial[position.entry_id] = ack_set
        self.marked = max(self.marked, upto)
        self.deleted = {entry for entry in self.deleted if entry > self.marked}
        while self.marked + 1 in self.deleted:
            self.marked += 1
        self.next = max(self.next, self.marked + 1)

    async def persist(self) -> None:
        await self.log.pause()

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        await self.log.pause()
        self.cursor_properties = dict(properties)

    def statistics(self) -> CursorStatistics:
        return CursorStatistics(
            self.name, self.durable, True, self.mark_delete, self.read_position,
            len(self.deleted), self.backlog_entries(), self.cursor_properties,
        )  # fmt: skip

    async def seek(self, position: Position) -> None:
        await self.log.pause()
        entry = 0 if position == EARLIEST else min(position.entry_id, len(self.log.entries))
        self.marked = entry - 1
        self.next = entry
        self.deleted.clear()
        self.partial.clear()

    async def skip(self, entries: int) -> None:
        await self.log.pause()
        for _ in range(entries):
            self.ack([Ack(at(self.marked + 1))])

    def backlog_entries(self) -> int:
        return len(self.log.entries) - 1 - self.marked - len(self.deleted)


class FakeLog:
    """`hold` keeps appends until `complete` is called; otherwise they are done at once."""

    def __init__(self, name: str = "log") -> None:
        self.name = name
        self.meter = LogMeter()
        self.entries: list[FakeEntry] = []
        self.cursors: dict[str, FakeCursor] = {}
        self.hold = False
        self.held: list[tuple[list[tuple[bytes, int]], AppendDone]] = []
        self.fail: LogError | None = None
        self.unready: LogError | None = None
        self.terminated = False
        self.closed = self.deleted = False
        self.slow_s = 0.0
        self.properties: dict[str, str] = {}

    async def pause(self) -> None:
        if self.slow_s:
            await trio.sleep(self.slow_s)

    async def make_ready(self) -> None:
        """The log takes appends, unless a test says otherwise."""
        if self.unready is not None:
            raise self.unready

    async def set_property(self, key: str, value: str) -> None:
        await trio.lowlevel.checkpoint()
        await self.pause()
        if self.fail is not None:
            raise self.fail
        self.properties[key] = value

    async def change_properties(
        self, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        await trio.lowlevel.checkpoint()
        if self.fail is not None:
            raise self.fail
        self.properties = dict(change(self.properties))

    async def settled(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def last_position(self) -> Position:
        return at(len(self.entries) - 1)

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        copied = [(bytes(data), messages) for data, messages in entries]
        if self.hold:
            self.held.append((copied, done))
        else:
            self._append(copied, done)

    def complete(self, appends: int = 1) -> None:
        for _ in range(appends):
            self._append(*self.held.pop(0))

    def _append(self, copied: list[tuple[bytes, int]], done: AppendDone) -> None:
        error = LogTerminated("terminated") if self.terminated else self.fail
        first = len(self.entries)
        if error is None:
            for data, messages in copied:
                self.entries.append(FakeEntry(at(len(self.entries)), data, messages))
        done(at(first), len(copied), error)
        for cursor in self.cursors.values():
            if error is None and cursor.wakes is not None:
                cursor.wakes()

    def _start(self, initial: Position) -> int:
        if initial == EARLIEST:
            return -1
        return len(self.entries) - 1 if initial == LATEST else initial.entry_id

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> FakeCursor:
        await self.pause()
        if name not in self.cursors:
            self.cursors[name] = FakeCursor(self, name, self._start(initial), True)
            self.cursors[name].cursor_properties = dict(cursor_properties or {})
            self.cursors[name].properties = dict(properties or {})
        return self.cursors[name]

    def open_reader(self, name: str, start: Position) -> FakeCursor:
        first = self._start(start)
        if start not in (EARLIEST, LATEST):
            first -= 1
        self.cursors[name] = FakeCursor(self, name, first, False)
        return self.cursors[name]

    async def delete_cursor(self, name: str) -> None:
        await self.pause()
        if self.cursors.pop(name, None) is None:
            raise CursorNotFound(name)

    async def read_range(
        self, first: Position, *, entries_max: int, bytes_max: int
    ) -> list[FakeEntry]:
        await self.pause()
        return self.entries[first.entry_id : first.entry_id + entries_max]

    async def find_by_time(self, timestamp_ms: int) -> Position:
        await self.pause()
        for entry in self.entries:
            try:
                if parse_metadata(entry.data).publish_time >= timestamp_ms:
                    return entry.position
            except RemoteProtocolError:
                continue
        return at(len(self.entries))

    def next_position(self, position: Position) -> Position:
        return at(position.entry_id + 1)

    def previous_position(self, position: Position) -> Position:
        return at(max(-1, position.entry_id - 1))

    def entries_between(self, after: Position, upto: Position) -> int:
        return upto.entry_id - (-1 if after == EARLIEST else after.entry_id)

    async def terminate(self) -> Position:
        await self.pause()
        self.terminated = True
        return self.last_position

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    def statistics(self) -> LogStatistics:
        size = self.size_bytes
        ledger = LedgerStatistics(LEDGER, len(self.entries), size, 0)
        return LogStatistics("open", len(self.entries), size, self.last_position, (ledger,), 0)

    async def trim(self) -> None:
        await self.pause()

    async def truncate(self) -> None:
        await self.pause()

    async def roll(self) -> None:
        await self.pause()

    async def close(self) -> None:
        self.closed = True

    async def delete(self) -> None:
        self.deleted = True
