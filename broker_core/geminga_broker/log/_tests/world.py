"""A broker's storage in memory, with faults, for the tests of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log.api import Entry, LogError
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import LogOptions
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol import payload
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata
from geminga_runtime.metadata.memory import MemoryMetadataStore

NAME = "public/default/persistent/t"


def message(text: str, *, time_ms: int = 1, batch: int = 0) -> bytes:
    """The payload part of a SEND frame."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=time_ms)
    if batch:
        metadata.num_messages_in_batch = batch
    return payload.build(metadata, text.encode())


def text_of(entry: Entry) -> str:
    """The inverse of `message`."""
    return bytes(payload.split(entry.data).payload).decode()


class Answers:
    """Collects the results of appends."""

    def __init__(self) -> None:
        self.runs: list[tuple[Position, int, LogError | None]] = []
        self._more = trio.Event()

    def __call__(self, first: Position, count: int, error: LogError | None) -> None:
        self.runs.append((first, count, error))
        self._more.set()
        self._more = trio.Event()

    @property
    def positions(self) -> list[Position]:
        """Positions of all entries that were written."""
        return [
            Position(first.ledger_id, type(first.entry_id)(first.entry_id + n))
            for first, count, error in self.runs
            if error is None
            for n in range(count)
        ]

    @property
    def errors(self) -> list[LogError]:
        return [error for _, _, error in self.runs if error is not None]

    @property
    def count(self) -> int:
        return sum(count for _, count, _ in self.runs)

    async def wait(self, count: int) -> None:
        while self.count < count:
            await self._more.wait()


@dataclass
class World:
    """One bookie and one metadata store, on which brokers come and go."""

    bookie: MemoryBookie = field(default_factory=MemoryBookie)
    store: MemoryMetadataStore = field(default_factory=MemoryMetadataStore)

    def damage(self, ledger_id: int, *entry_ids: int) -> None:
        """Flip a bit of these stored entries, or of all, so that their checksums are wrong."""
        entries = self.bookie._ledgers[ledger_id].entries
        for entry_id in entry_ids or list(entries):
            packet = bytearray(entries[entry_id])
            packet[-1] ^= 1
            entries[entry_id] = bytes(packet)

    @asynccontextmanager
    async def broker(
        self, options: LogOptions | None = None, *, crash: bool = False
    ) -> AsyncIterator[ManagedLedgerFactory]:
        """A factory; with `crash` it is cancelled at the end, not closed."""
        client = BookkeeperClient(KnownBookies([self.bookie]), self.store)
        if not crash:
            async with ManagedLedgerFactory(client, self.store, options) as factory:
                yield factory
            return
        with trio.CancelScope() as scope:
            async with ManagedLedgerFactory(client, self.store, options) as factory:
                yield factory
                scope.cancel()
                await trio.lowlevel.checkpoint()


async def publish(log: TopicLog, texts: Sequence[str]) -> list[Position]:
    """Append and wait for the results."""
    answers = Answers()
    log.append([(message(text), 1) for text in texts], answers)
    await answers.wait(len(texts))
    assert not answers.errors
    return answers.positions


async def drain(cursor: LogCursor, entries_max: int = 100) -> list[str]:
    texts: list[str] = []
    while entries := await cursor.read(entries_max=entries_max, bytes_max=1 << 30):
        texts += [text_of(entry) for entry in entries]
    return texts


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"m{n}" for n in range(start, start + count)]
