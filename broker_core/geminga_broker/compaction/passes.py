"""The two passes of a compaction, shared with the loop's other work (spec BR-50, BR-40)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import trio

from geminga_bookie.client.append import LedgerWriter, append_durably
from geminga_bookie.errors import BookkeeperError
from geminga_broker.compaction.keys import LatestKeys
from geminga_broker.compaction.ledger import after
from geminga_broker.compaction.outcome import Outcome
from geminga_broker.compaction.raw_entry import raw_parts
from geminga_broker.compaction.reading import CompactedTopic
from geminga_broker.log.api import Entry, LogWriteFailed
from geminga_broker.subscription.catch_up import ROUND_BYTES, ROUND_ENTRIES, CatchUp
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata.api import MetadataError

STEP_ENTRIES = 100
STEP_BYTES = 1 << 20
"""Bytes that one step reads and then writes while nothing is published."""

IN_LOOP_BYTES_MAX = 64 * 1024
"""Larger entries are packed and unpacked in a thread."""


class ReadableLog(Protocol):
    """The log after the compacted part."""

    async def read_range(
        self, first: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry]:
        """Entries from a position on. Raises LogReadFailed."""


class Walk:
    """Entries of a topic from its beginning to `end`: the compacted part, then the log. Pauses for
    tail work like readers of old entries. `read_s_max` bounds each read.
    """

    def __init__(
        self,
        compacted: CompactedTopic,
        log: ReadableLog,
        end: Position,
        read_s_max: float,
        catch_up: CatchUp,
    ) -> None:
        self.read_bytes = 0
        self._compacted = compacted
        self._log = log
        self._end = end
        self._read_s_max = read_s_max
        self._catch_up = catch_up
        self._place = EARLIEST
        self._gentle = False

    async def next(self) -> Sequence[Entry]:
        """The next entries, empty at the end. Raises LogReadFailed, TooSlowError."""
        entries_max = ROUND_ENTRIES if self._gentle else STEP_ENTRIES
        bytes_max = ROUND_BYTES if self._gentle else STEP_BYTES
        with trio.fail_after(self._read_s_max):
            entries = await self._read(entries_max, bytes_max)
        if entries:
            self._place = after(entries[-1].position)
            await self._give_way(entries)
        return entries

    async def _read(self, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        horizon = self._compacted.horizon
        if horizon is not None and self._place <= horizon:
            entries = await self._compacted.read(
                self._place, entries_max=entries_max, bytes_max=bytes_max
            )
            if entries:
                return entries
            self._place = after(horizon)
        if self._place > self._end:
            return []
        found = await self._log.read_range(
            self._place, entries_max=entries_max, bytes_max=bytes_max
        )
        return [entry for entry in found if entry.position <= self._end]

    async def _give_way(self, entries: Sequence[Entry]) -> None:
        size_bytes = sum(entry.size for entry in entries)
        self.read_bytes += size_bytes
        now_s = trio.current_time()
        pause_s = self._catch_up.pause_s(len(entries), size_bytes, now_s)
        self._gentle = self._catch_up.busy(now_s)
        await trio.sleep(pause_s)
        if pause_s:
            self._catch_up.paused(trio.current_time() - now_s - pause_s)


async def see_all(walk: Walk, keys: LatestKeys, outcome: Outcome) -> int:
    """The first pass; returns the number of entries. Raises LogReadFailed, TooSlowError."""
    seen = 0
    while entries := await walk.next():
        seen += len(entries)
        for entry in entries:
            if entry.size <= IN_LOOP_BYTES_MAX:
                keys.see(entry)
            else:
                await trio.to_thread.run_sync(keys.see, entry)
    keys.end_first_pass()
    outcome.read_bytes += walk.read_bytes
    outcome.removed(keys.removed)
    return seen


async def write_kept(
    walk: Walk, keys: LatestKeys, writer: LedgerWriter, partition: int, outcome: Outcome
) -> None:
    """The second pass: write the rest. Raises LogReadFailed, LogWriteFailed, TooSlowError."""
    try:
        while entries := await walk.next():
            kept: list[tuple[Buffer, Buffer]] = []
            for entry in entries:
                if entry.size <= IN_LOOP_BYTES_MAX:
                    data = keys.keep(entry)
                else:
                    data = await trio.to_thread.run_sync(keys.keep, entry)
                if data is not None:
                    kept.append(raw_parts(entry.position, partition, data))
                    outcome.written(memoryview(data).nbytes)
            if kept:
                began_s = perf_counter()
                await append_durably(writer, kept)
                outcome.stored(len(kept), perf_counter() - began_s)
        await writer.close()
    except (BookkeeperError, MetadataError) as error:
        text = f"compacted ledger {writer.ledger_id}: {error}"
        raise LogWriteFailed(text) from error
    outcome.read_bytes += walk.read_bytes
