"""What a broker asks the metadata store when it takes a topic from one that was killed: after the
end of a broker, a cluster's store is asked all of it for each of thousands of topics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from geminga_broker.log._tests.world import NAME, World, publish
from geminga_broker.log.api import Ack
from geminga_broker.log.options import LogOptions
from geminga_protocol.bookkeeper import paths
from geminga_protocol.ids import EARLIEST
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import Writes
from geminga_runtime.metadata.memory import MemoryMetadataStore

LOG = f"/managed-ledgers/{NAME}"
CURSOR = f"{LOG}/s"
NOTE = paths.id_generator()
DATA, STATE = 0, 1
"""Ledgers of the broker that is killed."""


class CountingStore(SteppedStore):
    """Keeps what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        """See `SteppedStore.step`."""
        self.asked.append((operation, path))
        yield

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        self.asked.append(("put_numbered", at))
        return await MemoryMetadataStore.put_numbered(self, at, writes)

    async def children(self, path: str) -> Sequence[str]:
        self.asked.append(("children", path))
        return await super().children(path)

    def take(self) -> list[tuple[str, str]]:
        """What was asked since the last call."""
        # Where there is a layout it is read once.
        asked = [each for each in self.asked if each[1] != paths.LAYOUT]
        self.asked.clear()
        return asked


def ledger(ledger_id: int) -> str:
    return paths.ledger(ledger_id)


@pytest.mark.parametrize("with_index", [False, True])
async def test_a_topic_with_a_subscription_is_taken_over(with_index: bool) -> None:
    store = CountingStore()
    world = World(store=store)
    options = LogOptions(broker_entry_metadata=with_index)
    async with world.broker(options, crash=True) as killed:
        log = await killed.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, ["a", "b", "c"])
        cursor.ack([Ack(positions[0])])
        await cursor.persist()
    store.take()
    async with world.broker(options, crash=True) as other:
        log = await other.open(NAME)
        assert store.take() == [
            ("get", LOG),
            # Recovery: its writer's changes must conflict before it is read to its end.
            ("get", ledger(DATA)),
            ("put", ledger(DATA)),
            ("put", ledger(DATA)),
            # The next ledger together with the claim of the log, which names it: two requests of
            # ZooKeeper's that wait for each other.
            ("put_numbered", NOTE),
            # The claim of the cursor (decision 36).
            ("children", LOG),
            ("get", CURSOR),
            ("get", LOG),
            ("put", CURSOR),
            ("get", ledger(STATE)),
            ("put", ledger(STATE)),
            ("put", ledger(STATE)),
        ]
        cursor = log.cursors["s"]
        cursor.ack([Ack(positions[1])])
        await cursor.persist()
        assert store.take() == [
            ("put", NOTE),
            ("put", ledger(3)),
            ("get", LOG),
            ("put", CURSOR),
            ("delete", f"{NOTE}0000000003"),
            ("delete", ledger(STATE)),
        ]
