"""What a client publishes little by little reaches the bookie in groups (BR-22)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.wire import Type, WireClient, message, open_broker
from geminga_broker.session.gathering import HOLD_S_MAX

TOPIC = "persistent://public/default/gathered"
AddDone = Callable[[int, int, BookkeeperError | None], None]
PAUSE_S = 0.0002


class Adds:
    """What reached the bookie, and is stored when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[int] = []
        self._waiting: list[tuple[AddDone, int, int]] = []

        def add(
            _bookie: MemoryBookie,
            _ledger_id: int,
            _master_key: bytes,
            first_entry_id: int,
            packets: Sequence[bytes],
            done: AddDone,
            *,
            recovery: bool = False,
        ) -> None:
            self.runs.append(len(packets))
            self._waiting.append((done, first_entry_id, len(packets)))

        monkeypatch.setattr(MemoryBookie, "add", add)

    def store(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done, first, count in waiting:
            done(first, count, None)


@asynccontextmanager
async def publishing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[WireClient, Adds]]:
    """A client with a producer on a broker whose bookie stores when it is told."""
    async with open_broker() as broker:
        client = broker.client(sockets=True)
        await client.connect()
        await client.open_producer(TOPIC)
        yield client, Adds(monkeypatch)
        await client.stream.aclose()


async def test_what_comes_meanwhile_is_one_group(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publishing(monkeypatch) as (client, adds):
        for number in range(4):
            await client.send(message(number))
            await trio.sleep(PAUSE_S)
        assert adds.runs == [1]
        adds.store()
        await trio.sleep(PAUSE_S)
        assert adds.runs == [1, 3]
        adds.store()
        for _ in range(4):
            await client.expect(Type.SEND_RECEIPT)


async def test_other_commands_pass_while_storage_hangs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publishing(monkeypatch) as (client, adds):
        await client.send(message(0))
        began = trio.current_time()
        await client.subscribe(TOPIC)
        assert trio.current_time() - began < 2 * HOLD_S_MAX
        adds.store()
        await client.expect(Type.SEND_RECEIPT)
