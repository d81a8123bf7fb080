"""What a writer adds by v2: on a connection of its own, answered by entry."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.errors import BookieUnavailable, LedgerFenced, RequestTimeout, StorageFailed
from geminga_bookie.wire._tests.peers import OK, Network, Peer, added, begin, kinds
from geminga_bookie.wire.remote import RemoteBookie
from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.bookkeeper.framing import FrameCutter
from geminga_protocol.pb.bookkeeper_protocol_pb2 import EOK, FORCE_LEDGER


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def bookie(network: Network, nursery: trio.Nursery) -> RemoteBookie:
    made = network.bookie(adds_by_v2=True, add_timeout_s=5, backoff_s=1, backoff_max_s=1)
    nursery.start_soon(made.run)
    return made


async def added_entries(peer: Peer, count: int) -> list[int]:
    """The entries of the next requests, which are adds by v2."""
    cutter, found = FrameCutter(1 << 30), []
    while len(found) < count:
        data = bytes(await peer.stream.receive_some(1 << 20))
        assert data, "the client closed the connection"
        found += v2.decode_requests(*cutter.feed(data))
    assert {(each.operation, each.flags, each.master_key) for each in found} == {(v2.ADD, 0, KEY)}
    return [each.entry_id for each in found]


async def test_answers_are_told_apart_by_entry(bookie: RemoteBookie, network: Network) -> None:
    one, two = begin(bookie, 0, 4), begin(bookie, 4, 2)
    peer = await network.accepted.receive()
    assert await added_entries(peer, 6) == list(range(6))
    await peer.send(v2.encode_add_answers(7, [4, 5, 0, 1]))
    await peer.send(v2.encode_add_answers(7, [2, 3]))
    await one.wait_for(4)
    assert kinds(two) == [(4, 2, OK)]
    assert kinds(one) == [(0, 2, OK), (2, 2, OK)]


async def test_refusals(bookie: RemoteBookie, network: Network) -> None:
    outcomes = begin(bookie, 0, 5)
    peer = await network.accepted.receive()
    await added_entries(peer, 5)
    await peer.send(v2.encode_add_answers(7, [0]) + v2.encode_add_answers(7, [1, 2], 104))
    await peer.send(v2.encode_add_answers(7, [3], 101) + v2.encode_add_answers(7, [4], 9999))
    await outcomes.wait_for(5)
    assert kinds(outcomes) == [
        (0, 1, OK), (1, 2, LedgerFenced), (3, 1, StorageFailed), (4, 1, StorageFailed),
    ]  # fmt: skip


async def test_recoveries_are_not_mistaken_for_the_writer(
    bookie: RemoteBookie, network: Network
) -> None:
    """Also not adds with a master key that v2 can't carry."""
    writer = begin(bookie, 0, 1)
    for_writer = await network.accepted.receive()
    recovery = begin(bookie, 0, 1, recovery=True)
    others = Outcomes()
    bookie.add(8, b"short", 0, packets(8, [0]), others)
    by_v3 = await network.accepted.receive()
    assert await added_entries(for_writer, 1) == [0]
    await by_v3.send(added(await by_v3.take(2)))
    await recovery.wait_for(1)
    await others.wait_for(1)
    assert kinds(recovery) == kinds(others) == [(0, 1, OK)]
    assert not writer.runs


async def test_answers_to_nothing(
    bookie: RemoteBookie, network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    """A late answer, after the run was given up, is none to another entry."""
    late = begin(bookie, 0, 1)
    peer = await network.accepted.receive()
    await added_entries(peer, 1)
    await trio.sleep(3)  # with the clock of the test; a connection silent for 5 s would be given up
    await peer.send(v2.encode_add_answers(9, [0]))
    await late.wait_for(1)
    assert kinds(late) == [(0, 1, RequestTimeout)]
    again = begin(bookie, 1, 1)
    await peer.send(v2.encode_add_answers(7, [0, 1]))
    await again.wait_for(1)
    assert kinds(again) == [(1, 1, OK)]


async def test_another_answer_ends_the_connection(bookie: RemoteBookie, network: Network) -> None:
    outcomes = begin(bookie, 0, 1)
    peer = await network.accepted.receive()
    await added_entries(peer, 1)
    await peer.send(b"".join(v2.encode_answer(v2.READ, 0, 7, 0, b"packet")))
    await outcomes.wait_for(1)
    assert kinds(outcomes) == [(0, 1, BookieUnavailable)]
    await peer.ended()


async def test_forcing_waits_for_adds_of_both(bookie: RemoteBookie, network: Network) -> None:
    begin(bookie, 0, 1)
    peer = await network.accepted.receive()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bookie.force, 7)
        await trio.testing.wait_all_tasks_blocked()
        await added_entries(peer, 1)
        assert network.attempts == 1
        await peer.send(v2.encode_add_answers(7, [0]))
        by_v3 = await network.accepted.receive()
        (request,) = await by_v3.take(1)
        assert request.header.operation == FORCE_LEDGER
        await by_v3.send(v3.frame(v3.response(FORCE_LEDGER, request.header.txnId, EOK)))
