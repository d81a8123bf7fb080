"""Answers that clients don't take, of all connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire._tests.clients import Client, adds
from geminga_bookie.wire.answers import SMALL_BYTES, STALL_S
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_protocol.bookkeeper import v3
from geminga_runtime.stream import FramedStream

MiB = 1 << 20
BOUND = 16 * MiB
ENTRIES = 8


@asynccontextmanager
async def serving(
    shared: Shared, bookie: MemoryBookie, *, drop_after_s: float | None = None
) -> AsyncIterator[Callable[[], Client]]:
    """Connections whose bytes wait until the client takes them, as a full socket's do."""
    outcomes = Outcomes()
    bookie.add(7, KEY, 0, packets(7, range(ENTRIES), MiB), outcomes)
    await outcomes.wait_for(ENTRIES)
    limits = SessionLimits(frame_bytes_max=2 * MiB, drop_after_s=drop_after_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared.run)

        def connect() -> Client:
            near, far = trio.testing.lockstep_stream_pair()
            stream = FramedStream(far, name="client", write_high_bytes=4 * MiB)
            session = BookieSession(bookie, stream, limits, shared)

            async def run() -> None:
                try:
                    await session.run()
                except* ConnectionError:
                    pass
                finally:
                    await stream.aclose()

            nursery.start_soon(run)
            return Client(near)

        yield connect
        nursery.cancel_scope.cancel()
    assert shared.answers.bytes == 0


def reads(count: int) -> bytes:
    """Requests that aren't neighbours, so that they are served side by side."""
    return b"".join(v3.encode_reads(7, at % ENTRIES, 1, 1 + at) for at in range(0, 2 * count, 2))


async def test_clients_that_take_nothing_share_a_bound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """They are closed where another one needs room, which is then served."""
    bookie = MemoryBookie()
    shared = Shared(bookie, answers_bytes_max=BOUND)
    async with serving(shared, bookie) as connect:
        highest = 0
        for _ in range(40):
            await connect().send(reads(30))
            await trio.testing.wait_all_tasks_blocked()
            highest = max(highest, shared.answers.bytes)
        assert BOUND // 2 < highest <= BOUND
        good = connect()
        began = trio.current_time()
        await good.send(reads(1))
        with trio.fail_after(60):
            (answer,) = await good.responses(1)
        assert answer.readResponse.entryId == 0
        assert shared.answers.closed
        # Each of the others has had one answer before, at most.
        assert trio.current_time() - began <= 40 / 4 * STALL_S
        assert shared.answers.bytes <= BOUND


async def test_a_client_that_takes_its_answers_is_not_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bookie = MemoryBookie()
    shared = Shared(bookie, answers_bytes_max=BOUND)
    async with serving(shared, bookie) as connect, trio.open_nursery() as nursery:
        for _ in range(12):
            client = connect()

            async def work(client: Client = client) -> None:
                await client.send(reads(20))
                for _ in range(20):
                    await trio.sleep(0.1)
                    await client.responses(1)

            nursery.start_soon(work)
        await trio.sleep(0.05)
        assert len(shared.answers)
    assert not shared.answers.closed


async def test_answers_without_room_are_dropped(autojump_clock: trio.testing.MockClock) -> None:
    """Where that is asked for; who holds the room is closed all the same."""
    bookie = MemoryBookie()
    shared = Shared(bookie, answers_bytes_max=BOUND)
    async with serving(shared, bookie, drop_after_s=0.5) as connect:
        for _ in range(8):
            await connect().send(reads(8))
            await trio.testing.wait_all_tasks_blocked()
        good = connect()
        await good.send(reads(1))
        await trio.sleep(0.6)
        assert shared.answers.dropped >= 1
        await trio.sleep(2 * STALL_S)
        assert shared.answers.closed
        await good.send(v3.encode_reads(7, 0, 1, 1000))
        assert (await good.responses(1))[0].header.txnId == 1000


async def test_adds_don_t_wait_for_others(autojump_clock: trio.testing.MockClock) -> None:
    """Their answers are small; but a client that never takes them may not collect them."""
    bookie = MemoryBookie()
    shared = Shared(bookie, answers_bytes_max=BOUND)
    async with serving(shared, bookie) as connect:
        for _ in range(40):
            await connect().send(reads(30))
        await trio.testing.wait_all_tasks_blocked()
        writer, began = connect(), trio.current_time()
        await writer.send(adds(0, 3, ledger=8))
        assert len(await writer.responses(3)) == 3
        assert trio.current_time() == began
        shared.answers.change(BOUND)
        first = 3
        with trio.move_on_after(1):
            while True:
                await writer.send(adds(first, 1000, ledger=8))
                first += 1000
        assert first * 20 < 10 * SMALL_BYTES
        shared.answers.change(-BOUND)
