"""The bounds of the server's connections."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import KEY, Outcomes, lac_packet, packet, packets
from geminga_bookie.wire._tests.clients import Client, SlowBookie, adds, serving
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_protocol.bookkeeper import v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    EOK,
    ETOOMANYREQUESTS,
    READ_ENTRY,
    WRITE_LAC,
    ReadRequest,
)
from geminga_runtime.stream import FramedStream

MiB = 1 << 20


@pytest.fixture
def bookie() -> SlowBookie:
    return SlowBookie()


class TestBounds:
    async def test_nothing_is_read_above_the_bound_of_adds(self, bookie: SlowBookie) -> None:
        bookie.holds = True
        async with serving(bookie, unanswered_bytes_max=10_000) as connect:
            client = connect()
            await client.send(adds(0, 100))
            await trio.testing.wait_all_tasks_blocked()
            await client.send(adds(100, 10))
            await trio.testing.wait_all_tasks_blocked()
            assert [run[2] for run in bookie.runs] == [100]
            bookie.release()
            await trio.testing.wait_all_tasks_blocked()
            assert [run[2] for run in bookie.runs] == [100, 10]
            bookie.release()
            assert len(await client.responses(110)) == 110

    async def test_nothing_is_read_above_the_bound_of_all(self, bookie: SlowBookie) -> None:
        bookie.holds = True
        async with serving(bookie, budget_bytes=10_000) as connect:
            one, two = connect(), connect()
            await one.send(adds(0, 100))
            await trio.testing.wait_all_tasks_blocked()
            await two.send(adds(0, 1, ledger=8))
            await trio.testing.wait_all_tasks_blocked()
            await two.send(adds(1, 1, ledger=8))
            await trio.testing.wait_all_tasks_blocked()
            assert len(bookie.runs) == 2
            bookie.release()
            await trio.testing.wait_all_tasks_blocked()
            assert len(bookie.runs) == 3

    async def test_waiting_reads(self, bookie: SlowBookie) -> None:
        async with serving(bookie, waiting_reads_max=2) as connect:
            client = connect()
            await client.send(adds(0, 2))
            await client.responses(2)
            for txn in range(4):
                request = v3.request(READ_ENTRY, txn)
                asked = request.readRequest
                asked.ledgerId, asked.entryId, asked.previousLAC, asked.timeOut = 7, -1, 0, 10_000
                asked.flag = ReadRequest.ENTRY_PIGGYBACK
                await client.send(v3.frame(request))
            refused = await client.responses(2)
            assert {answer.header.txnId for answer in refused} == {2, 3}
            assert {answer.status for answer in refused} == {ETOOMANYREQUESTS}
            told = v3.request(WRITE_LAC, 9)
            body = told.writeLacRequest
            body.ledgerId, body.lac, body.masterKey, body.body = 7, 1, KEY, lac_packet(7, 1)
            await client.send(v3.frame(told))
            answers = await client.responses(3)
            found = [answer.readResponse for answer in answers if answer.header.txnId < 2]
            assert [(said.maxLAC, said.entryId, said.body) for said in found] == [
                (1, 1, packet(7, 1, 0))
            ] * 2

    async def test_a_wait_ends(
        self, bookie: SlowBookie, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with serving(bookie, wait_max_s=3) as connect:
            client = connect()
            await client.send(adds(0, 2))
            await client.responses(2)
            request = v3.request(READ_ENTRY, 1)
            asked = request.readRequest
            asked.ledgerId, asked.entryId, asked.previousLAC, asked.timeOut = 7, -1, 5, 1 << 40
            asked.flag = ReadRequest.ENTRY_PIGGYBACK
            began = trio.current_time()
            said = (await client.call(request)).readResponse
            assert (said.status, said.maxLAC, said.HasField("body")) == (EOK, 0, False)
            assert trio.current_time() - began == pytest.approx(3, abs=0.02)

    async def test_a_client_that_takes_no_answers(
        self, bookie: SlowBookie, autojump_clock: trio.testing.MockClock
    ) -> None:
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, packets(7, range(10), MiB // 2), outcomes)
        await outcomes.wait_for(10)
        near, far = trio.testing.lockstep_stream_pair()
        stream = FramedStream(far, name="client", write_high_bytes=MiB)
        session = BookieSession(bookie, stream, SessionLimits(write_timeout_s=5), Shared(bookie))
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                try:
                    await session.run()
                except* ConnectionError:
                    pass

            nursery.start_soon(run)
            await near.send_all(v3.encode_reads(7, 0, 10, 1) + v3.encode_reads(7, 0, 1, 50) * 300)
            await trio.testing.wait_all_tasks_blocked()
            assert stream.pending_bytes <= 20 * MiB
        assert stream.lost
        await near.aclose()

    async def test_answers_are_dropped(
        self, bookie: SlowBookie, autojump_clock: trio.testing.MockClock
    ) -> None:
        """To a client that takes none; it gets later ones when it goes on."""
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, packets(7, range(10), MiB // 2), outcomes)
        await outcomes.wait_for(10)
        near, far = trio.testing.lockstep_stream_pair()
        stream = FramedStream(far, name="client", write_high_bytes=MiB)
        shared = Shared(bookie)
        limits = SessionLimits(write_timeout_s=50, drop_after_s=0.5)
        session = BookieSession(bookie, stream, limits, shared)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shared.run)
            nursery.start_soon(session.run)
            reads = b"".join(v3.encode_reads(7, at % 10, 1, at) for at in range(1, 200, 2))
            await near.send_all(reads)
            await trio.sleep(1)
            assert 8 <= shared.answers.dropped < 100
            client = Client(near)
            answered = 0
            while True:
                with trio.move_on_after(5) as waiting:
                    await client.responses(1)
                    answered += 1
                if waiting.cancelled_caught:
                    break
            assert answered + shared.answers.dropped == 100
            await client.send(v3.encode_reads(7, 0, 1, 1000))
            assert (await client.responses(1))[0].header.txnId == 1000
            nursery.cancel_scope.cancel()
        await near.aclose()
