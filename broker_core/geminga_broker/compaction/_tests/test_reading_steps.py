"""Events between two steps of a compaction, and of a compacted read (BR-50)."""

from __future__ import annotations

from collections.abc import Sequence

import trio
import trio.testing

from geminga_broker._tests.fake_client import FakeConnection, payload, subscribe_request
from geminga_broker._tests.fake_log import FakeCursor, FakeEntry, FakeLog, at
from geminga_broker.compaction.passes import Walk
from geminga_broker.compaction.reading import CompactedCursor
from geminga_broker.subscription.catch_up import CatchUp
from geminga_broker.topic.api import InitialPosition
from geminga_protocol.ids import Position


class Compacted:
    """The compacted part: entries of ledger 1, given when a test lets it."""

    def __init__(self, count: int) -> None:
        self.entries = [FakeEntry(Position(1, n), payload(n), 1) for n in range(count)]
        self.horizon: Position | None = self.entries[-1].position if count else None
        self.go = trio.Event()
        self.go.set()

    async def read(
        self, position: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[FakeEntry]:
        found = [entry for entry in self.entries if entry.position >= position][:entries_max]
        await self.go.wait()
        return found

    async def find_by_time(self, timestamp_ms: int) -> Position:
        raise AssertionError(f"nobody asks for {timestamp_ms}")


class Log:
    """The later entries, whatever the walk's end is."""

    async def read_range(
        self, first: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[FakeEntry]:
        every = [FakeEntry(Position(2, n), payload(n), 1) for n in range(6)]
        await trio.lowlevel.checkpoint()
        return [entry for entry in every if entry.position >= first][:entries_max]


async def test_a_walk_sees_nothing_that_came_after_it_began() -> None:
    """The compacted ledger would have it, and the log has it too: readers would get it twice."""
    walk = Walk(Compacted(2), Log(), Position(2, 3), 60.0, CatchUp())
    seen: list[Position] = []
    while entries := await walk.next():
        seen += [entry.position for entry in entries]
    assert seen == [Position(1, 0), Position(1, 1), *(Position(2, n) for n in range(4))]


async def test_a_rewind_during_a_read_of_the_compacted_part_counts(
    nursery: trio.Nursery,
) -> None:
    compacted = Compacted(6)
    log = FakeCursor(FakeLog(), "s", -1, True)
    request = subscribe_request(
        FakeConnection(), 1, "s", initial_position=InitialPosition.Earliest, read_compacted=True
    )
    cursor = CompactedCursor(log, compacted, request)
    first = await cursor.read(entries_max=2, bytes_max=1000)
    assert [entry.position.entry_id for entry in first] == [0, 1]
    compacted.go = trio.Event()
    found: list[int] = []

    async def read() -> None:
        entries = await cursor.read(entries_max=2, bytes_max=1000)
        found.extend(entry.position.entry_id for entry in entries)

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    cursor.rewind()
    compacted.go.set()
    await trio.testing.wait_all_tasks_blocked()
    assert found == [0, 1]
    assert cursor.read_position == Position(1, 2)
    assert at(0) > cursor.read_position
