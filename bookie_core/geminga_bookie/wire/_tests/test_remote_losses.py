"""The client of a bookie loses its connection, and meets peers that break the protocol."""

from __future__ import annotations

import random
import struct

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import Outcomes
from geminga_bookie.errors import (
    BookieUnavailable,
    RequestTimeout,
)
from geminga_bookie.wire._tests.peers import (
    OK,
    Network,
    Peer,
    added,
    begin,
    frames_of,
    kinds,
)
from geminga_bookie.wire.remote import RemoteBookie
from geminga_protocol.bookkeeper import v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    EIO,
)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def bookie(network: Network, nursery: trio.Nursery) -> RemoteBookie:
    made = network.bookie(add_timeout_s=5, read_timeout_s=5, backoff_s=1, backoff_max_s=1)
    nursery.start_soon(made.run)
    return made


class TestLosses:
    async def test_what_was_not_answered_fails(
        self, bookie: RemoteBookie, network: Network, nursery: trio.Nursery
    ) -> None:
        outcomes = begin(bookie, 0, 10)
        peer = await network.accepted.receive()
        requests = await peer.take(10)
        await peer.send(added(requests[2:5]))
        await outcomes.wait_for(3)
        nursery.start_soon(self._lost_call, bookie)
        await trio.testing.wait_all_tasks_blocked()
        await peer.stream.aclose()
        await outcomes.wait_for(10)
        assert sorted(kinds(outcomes)) == [
            (0, 2, BookieUnavailable), (2, 3, OK), (5, 5, BookieUnavailable),
        ]  # fmt: skip

    async def _lost_call(self, bookie: RemoteBookie) -> None:
        with pytest.raises(BookieUnavailable):
            await bookie.last_entry(7)

    async def test_the_next_request_connects_again(
        self, bookie: RemoteBookie, network: Network
    ) -> None:
        for first in range(3):
            outcomes = begin(bookie, first, 1)
            peer = await network.accepted.receive()
            await peer.send(added(await peer.take(1)))
            await outcomes.wait_for(1)
            assert outcomes.errors == []
            await peer.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
        assert network.attempts == 3

    async def test_a_bookie_that_is_away(
        self, bookie: RemoteBookie, network: Network, autojump_clock: trio.testing.MockClock
    ) -> None:
        network.is_down = True
        for _ in range(3):
            outcomes = begin(bookie, 0, 2)
            await outcomes.wait_for(2)
            assert kinds(outcomes) == [(0, 2, BookieUnavailable)]
            with pytest.raises(BookieUnavailable):
                await bookie.last_entry(7)
        assert network.attempts == 1, "it isn't tried again before the wait is over"
        network.is_down = False
        await trio.sleep(2)
        outcomes = begin(bookie, 0, 2)
        peer = await network.accepted.receive()
        await peer.send(added(await peer.take(2)))
        await outcomes.wait_for(2)
        assert outcomes.errors == []

    async def test_a_bookie_that_never_answers(
        self, bookie: RemoteBookie, network: Network, autojump_clock: trio.testing.MockClock
    ) -> None:
        began = trio.current_time()
        outcomes = begin(bookie, 0, 2)
        peer = await network.accepted.receive()
        with pytest.raises(RequestTimeout):
            await bookie.last_entry(7)
        await outcomes.wait_for(2)
        assert kinds(outcomes) == [(0, 2, RequestTimeout)]
        assert trio.current_time() - began == pytest.approx(5)
        await peer.ended()

    async def test_late_answers(
        self, bookie: RemoteBookie, network: Network, autojump_clock: trio.testing.MockClock
    ) -> None:
        """An answer that comes after the deadline has no effect, and the connection stays."""
        one = begin(bookie, 0, 2)
        peer = await network.accepted.receive()
        requests = await peer.take(2)
        await trio.sleep(3)
        two = begin(bookie, 2, 1)
        others = await peer.take(1)
        await peer.send(added(requests[:1]))
        await one.wait_for(2)
        assert kinds(one) == [(0, 1, OK), (1, 1, RequestTimeout)]
        await peer.send(added(requests) + added(others))
        await two.wait_for(1)
        assert two.errors == []
        assert network.attempts == 1

    async def test_a_bookie_that_stops_reading(
        self, network: Network, autojump_clock: trio.testing.MockClock
    ) -> None:
        """What can't be sent is not kept for ever."""
        near, far = trio.testing.lockstep_stream_pair()

        async def dial(_deadline: float) -> object:
            from geminga_runtime.stream import FramedStream

            return FramedStream(near, name="stuck")

        bookie = network.bookie(add_timeout_s=5)
        bookie._link._dial = dial  # type: ignore[assignment]  # a stream that takes nothing
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bookie.run)
            outcomes = begin(bookie, 0, 10)
            await outcomes.wait_for(10)
            assert kinds(outcomes) == [(0, 10, RequestTimeout)]
            await trio.testing.wait_all_tasks_blocked()
            assert bookie._link._stream is None
            nursery.cancel_scope.cancel()
        await far.aclose()

    async def test_at_the_end_all_fail(self, network: Network) -> None:
        bookie = network.bookie()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bookie.run)
            outcomes = begin(bookie, 0, 3)
            await network.accepted.receive()
            nursery.cancel_scope.cancel()
        assert kinds(outcomes) == [(0, 3, BookieUnavailable)]
        late = begin(bookie, 0, 3)
        await late.wait_for(3)
        assert kinds(late) == [(0, 3, BookieUnavailable)]
        with pytest.raises(BookieUnavailable):
            await bookie.last_entry(7)

    async def test_cut_after_each_byte(self, network: Network, nursery: trio.Nursery) -> None:
        """Answered is what came whole; all others are of unknown outcome."""
        bookie = network.bookie(backoff_s=0.01, backoff_max_s=0.01)
        nursery.start_soon(bookie.run)
        length = 3 * len(v3.encode_add_answers(7, [5], [v3.TXN_FIRST]))
        for cut_at in range(length + 1):
            outcomes = begin(bookie, 0, 3)
            peer = await network.accepted.receive()
            data = added(await peer.take(3))
            await peer.send(data[:cut_at])
            await peer.stream.aclose()
            await outcomes.wait_for(3)
            whole = cut_at * 3 // length
            entries = sum(count for _, count, error in outcomes.runs if error is None)
            assert entries == whole
            assert outcomes.total == 3
            await trio.testing.wait_all_tasks_blocked()

    @pytest.mark.parametrize(
        "data",
        [
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            struct.pack(">I", 0xFFFFFFFF),
            struct.pack(">I", 5 * 1024 * 1024),
            struct.pack(">I", 0),
            struct.pack(">I", 20) + b"\xff" * 20,
            v3.encode_add_answers(7, [1], [5]),
            v3.encode_add_answers(7, [1], [v3.TXN_FIRST + 99]),
            v3.frame(v3.response(ADD_ENTRY, 1 << 60, EIO)),
        ],
    )
    async def test_garbage(self, bookie: RemoteBookie, network: Network, data: bytes) -> None:
        """The connection ends: nothing behind it can be trusted."""
        outcomes = begin(bookie, 0, 3)
        peer = await network.accepted.receive()
        await peer.take(3)
        await peer.send(data)
        await outcomes.wait_for(3)
        assert kinds(outcomes) == [(0, 3, BookieUnavailable)]
        await peer.ended()

    async def test_random_peers(
        self, network: Network, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Answers in any order, twice, wrong, mutated, or none: each entry is done once."""
        bookie = network.bookie(add_timeout_s=1, backoff_s=0.01, backoff_max_s=0.01)
        rng = random.Random(7)

        async def play(peer: Peer) -> None:
            try:
                while True:
                    requests = await peer.take(1)
                    requests += await peer.take(len(peer.requests))
                    answers = list(frames_of(added(requests)))
                    rng.shuffle(answers)
                    for each in answers:
                        chance = rng.random()
                        if chance < 0.02:
                            flipped = bytearray(each)
                            flipped[rng.randrange(4, len(each))] ^= 1 << rng.randrange(8)
                            each = bytes(flipped)
                        elif chance < 0.04:
                            each *= 2
                        elif chance < 0.05:
                            await peer.stream.aclose()
                            return
                        elif chance < 0.1:
                            continue
                        await peer.send(each)
            except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                return

        async def connections() -> None:
            async for peer in network.accepted:
                nursery.start_soon(play, peer)

        nursery.start_soon(bookie.run)
        nursery.start_soon(connections)
        every: list[Outcomes] = []
        for first in range(0, 3000, 10):
            every.append(begin(bookie, first, 10))
            await trio.sleep(rng.random() / 10)
        for outcomes in every:
            await outcomes.wait_for(10)
        await trio.sleep(10)
        for at, outcomes in enumerate(every):
            done = [first + each for first, count, _ in outcomes.runs for each in range(count)]
            assert sorted(done) == list(range(at * 10, at * 10 + 10))
