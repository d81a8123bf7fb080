"""A journal with a hanging disk: waiting entries are bounded, including their objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_bookie.errors import BookkeeperError, StorageFailed
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.wire import message, open_broker, with_network
from geminga_broker.session.backpressure import PENDING_ENTRY_BYTES

TOPIC = "persistent://public/default/hung"
AddDone = Callable[[int, int, BookkeeperError | None], None]
READ_BYTES_MAX = 256 << 10
"""Of one connection, before it is looked at again whether more may be read."""


@pytest.mark.slow
async def test_small_entries_that_wait_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections, each = 3, 20_000
    waiting: list[tuple[AddDone, int, int]] = []

    def hang(
        self: MemoryBookie,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        waiting.append((done, first_entry_id, len(packets)))

    config = with_network(publish_buffer_mb_max=1, shutdown_timeout_ms=100)
    async with open_broker(config) as broker:
        clients = [broker.client(sockets=True) for _ in range(connections)]
        for number, client in enumerate(clients):
            await client.connect()
            await client.open_producer(f"{TOPIC}-{number}")
        monkeypatch.setattr(MemoryBookie, "add", hang)
        size = len(message(each))
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.send, *[message(n) for n in range(each)])
            await wait_all_tasks_blocked(0.3)
            nursery.cancel_scope.cancel()
        bound = (1 << 20) // PENDING_ENTRY_BYTES + connections * READ_BYTES_MAX // size
        assert 0 < sum(count for _, _, count in waiting) <= bound
        monkeypatch.undo()
        for done, first, count in waiting:
            done(first, count, StorageFailed("the disk is gone"))
        for client in clients:
            await client.stream.aclose()
