"""The client of a bookie before peers that do what no bookie should: nothing hangs, each entry is
done exactly once, memory is bounded.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import KEY, Outcomes, packet, packets
from geminga_bookie.errors import (
    IncorrectParameter,
    LedgerFenced,
    NoSuchEntry,
    RequestTimeout,
    StorageFailed,
    TooManyRequests,
)
from geminga_bookie.wire._tests.peers import (
    OK,
    Network,
    Peer,
    added,
    answer,
    begin,
    kinds,
)
from geminga_bookie.wire.remote import RemoteBookie
from geminga_protocol.bookkeeper import v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    EFENCED,
    EIO,
    ENOENTRY,
    EOK,
    FORCE_LEDGER,
    READ_ENTRY,
    AddRequest,
)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def bookie(network: Network, nursery: trio.Nursery) -> RemoteBookie:
    made = network.bookie(add_timeout_s=5, read_timeout_s=5, backoff_s=1, backoff_max_s=1)
    nursery.start_soon(made.run)
    return made


class TestAdds:
    async def test_a_run_is_one_part_if_answered_at_once(
        self, bookie: RemoteBookie, network: Network
    ) -> None:
        one, two = begin(bookie, 0, 50), begin(bookie, 50, 50)
        peer = await network.accepted.receive()
        requests = await peer.take(100)
        assert [each.addRequest.entryId for each in requests] == list(range(100))
        assert {each.addRequest.masterKey for each in requests} == {KEY}
        await peer.send(added(requests))
        await two.wait_for(50)
        assert (kinds(one), kinds(two)) == ([(0, 50, OK)], [(50, 50, OK)])

    async def test_answers_out_of_order(self, bookie: RemoteBookie, network: Network) -> None:
        one, two = begin(bookie, 0, 6), begin(bookie, 6, 2)
        peer = await network.accepted.receive()
        requests = await peer.take(8)
        await peer.send(added([requests[at] for at in (7, 6, 4, 5, 1)]))
        await one.wait_for(3)
        await peer.send(added([requests[at] for at in (3, 0, 2)]))
        await one.wait_for(6)
        assert sorted(kinds(two)) == [(6, 1, OK), (7, 1, OK)]
        assert sorted(kinds(one)) == [(0, 1, OK), (1, 1, OK), (2, 1, OK), (3, 1, OK), (4, 2, OK)]

    async def test_refusals_of_neighbours_are_one(
        self, bookie: RemoteBookie, network: Network
    ) -> None:
        outcomes = begin(bookie, 0, 10)
        peer = await network.accepted.receive()
        requests = await peer.take(10)
        data = added(requests[:3]) + b"".join(answer(each, EFENCED) for each in requests[3:7])
        await peer.send(data + answer(requests[7], EIO) + added(requests[8:]))
        await outcomes.wait_for(10)
        assert kinds(outcomes) == [
            (0, 3, OK), (3, 4, LedgerFenced), (7, 1, StorageFailed), (8, 2, OK),
        ]  # fmt: skip

    async def test_answers_twice_count_once(self, bookie: RemoteBookie, network: Network) -> None:
        one, two = begin(bookie, 0, 4), begin(bookie, 4, 4)
        peer = await network.accepted.receive()
        requests = await peer.take(8)
        await peer.send(added(requests[1:3]) * 2 + added(requests[:4]) * 3)
        await one.wait_for(4)
        await peer.send(b"".join(answer(each, EIO) for each in requests[:4]) + added(requests[4:]))
        await two.wait_for(4)
        assert sorted(kinds(one)) == [(0, 1, OK), (1, 2, OK), (3, 1, OK)]
        assert kinds(two) == [(4, 4, OK)]

    async def test_recovery_adds(self, bookie: RemoteBookie, network: Network) -> None:
        begin(bookie, 0, 1, recovery=True)
        peer = await network.accepted.receive()
        (request,) = await peer.take(1)
        assert request.addRequest.flag == AddRequest.RECOVERY_ADD
        assert request.header.priority == 100

    async def test_force_is_sent_behind_the_answers(
        self, bookie: RemoteBookie, network: Network, nursery: trio.Nursery
    ) -> None:
        outcomes = begin(bookie, 0, 3)
        peer = await network.accepted.receive()
        requests = await peer.take(3)
        forced = trio.Event()

        async def force() -> None:
            await bookie.force(7)
            assert outcomes.total == 3
            forced.set()

        nursery.start_soon(force)
        with trio.move_on_after(0.01) as scope:
            await peer.take(1)
        assert scope.cancelled_caught, "it overtook the adds"
        await peer.send(added(requests))
        (request,) = await peer.take(1)
        assert request.header.operation == FORCE_LEDGER
        await peer.send(v3.frame(v3.response(FORCE_LEDGER, request.header.txnId, EOK)))
        await forced.wait()

    async def test_an_add_that_fits_into_no_frame(
        self, bookie: RemoteBookie, network: Network
    ) -> None:
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, [packet(7, 0, size=5 << 20)], outcomes)
        assert outcomes.runs == []
        await outcomes.wait_for(1)
        assert kinds(outcomes) == [(0, 1, IncorrectParameter)]
        assert network.attempts == 0

    async def test_nothing_at_all(self, bookie: RemoteBookie) -> None:
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, [], outcomes)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes.runs == [(0, 0, None)]


class TestBounds:
    async def test_adds_queue_and_then_fail(self, network: Network, nursery: trio.Nursery) -> None:
        bookie = network.bookie(
            unanswered_bytes_max=10_000, queued_bytes_max=5_000, add_timeout_s=50
        )
        nursery.start_soon(bookie.run)
        before = begin(bookie, 1000, 1)
        peer = await network.accepted.receive()
        await peer.send(added(await peer.take(1)))
        await before.wait_for(1)
        outcomes = Outcomes()
        for first in range(0, 200, 10):
            bookie.add(7, KEY, first, packets(7, range(first, first + 10), 68), outcomes)
        await outcomes.wait_for(50)
        assert [type(error) for error in outcomes.errors] == [TooManyRequests] * 5
        for _ in range(15):
            requests = await peer.take(10)
            assert len(peer.requests) <= 90
            await peer.send(added(requests))
        await outcomes.wait_for(200)
        assert len(outcomes.errors) == 5

    async def test_a_run_above_the_bound_goes_alone(
        self, network: Network, nursery: trio.Nursery
    ) -> None:
        bookie = network.bookie(unanswered_entries_max=3, queued_entries_max=1)
        nursery.start_soon(bookie.run)
        one, two = begin(bookie, 0, 10), begin(bookie, 10, 10)
        await two.wait_for(10)
        assert [type(error) for error in two.errors] == [TooManyRequests]
        peer = await network.accepted.receive()
        await peer.send(added(await peer.take(10)))
        await one.wait_for(10)
        assert one.errors == []

    async def test_requests(
        self, network: Network, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        bookie = network.bookie(requests_max=2)
        nursery.start_soon(bookie.run)
        for _ in range(2):
            nursery.start_soon(self._ignored_read, bookie)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TooManyRequests):
            await bookie.last_entry(7)
        await trio.sleep(100)
        with pytest.raises(RequestTimeout):
            await bookie.last_entry(7)
        nursery.cancel_scope.cancel()

    async def _ignored_read(self, bookie: RemoteBookie) -> None:
        with pytest.raises(RequestTimeout):
            await bookie.last_entry(7)


class TestReads:
    async def _serve(self, peer: Peer, sizes: list[int], *, shuffled: bool) -> None:
        """A bookie with entries of these sizes."""
        rng = random.Random(5)
        while True:
            requests = await peer.take(1)
            await trio.testing.wait_all_tasks_blocked()
            requests += await peer.take(len(peer.requests))
            if shuffled:
                rng.shuffle(requests)
            for each in requests:
                at = each.readRequest.entryId
                known = at < len(sizes)
                body = packet(7, at, size=sizes[at]) if known else None
                await peer.send(answer(each, EOK if known else ENOENTRY, body))

    @pytest.mark.parametrize("shuffled", [False, True])
    @pytest.mark.parametrize("size", [0, 100, 5_000])
    async def test_all_that_fits(
        self,
        bookie: RemoteBookie,
        network: Network,
        nursery: trio.Nursery,
        shuffled: bool,
        size: int,
    ) -> None:
        serve = partial(self._serve, sizes=[size] * 600, shuffled=shuffled)

        async def connections() -> None:
            async for peer in network.accepted:
                nursery.start_soon(serve, peer)

        nursery.start_soon(connections)
        whole = [packet(7, at, size=size) for at in range(600)]
        one = len(whole[0])
        assert await bookie.read(7, 0, entries_max=1, bytes_max=1) == whole[:1]
        assert await bookie.read(7, 3, entries_max=4, bytes_max=1 << 30) == whole[3:7]
        if not shuffled:
            assert await bookie.read(7, 590, entries_max=20, bytes_max=1 << 30) == whole[590:]
            assert await bookie.read(7, 0, entries_max=999, bytes_max=1 << 30) == whole
            assert await bookie.read(7, 0, entries_max=99, bytes_max=3 * one + 1) == whole[:3]
        found = await bookie.read(7, 0, entries_max=99, bytes_max=3 * one)
        assert found == whole[: len(found)]
        assert 1 <= len(found) <= 3
        with pytest.raises(NoSuchEntry):
            await bookie.read(7, 600, entries_max=5, bytes_max=1)

    async def test_an_answer_without_an_entry(
        self, bookie: RemoteBookie, network: Network, nursery: trio.Nursery
    ) -> None:
        async def peer_answers() -> None:
            peer = await network.accepted.receive()
            (request,) = await peer.take(1)
            await peer.send(answer(request, EOK))

        nursery.start_soon(peer_answers)
        with pytest.raises(StorageFailed):
            await bookie.read(7, 0, entries_max=1, bytes_max=1)

    async def test_an_answer_of_another_kind(
        self, bookie: RemoteBookie, network: Network, nursery: trio.Nursery
    ) -> None:
        async def peer_answers() -> None:
            peer = await network.accepted.receive()
            (request,) = await peer.take(1)
            await peer.send(v3.frame(v3.response(READ_ENTRY, request.header.txnId, EOK)))

        nursery.start_soon(peer_answers)
        with pytest.raises(StorageFailed):
            await bookie.force(7)
