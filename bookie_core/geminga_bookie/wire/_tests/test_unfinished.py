"""Frames that aren't whole yet, of all connections together."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import KEY, packets
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire._tests.auth_plugin import NAME, ROUNDS, WordAuth
from geminga_bookie.wire._tests.clients import Client, SlowBookie, adds, serving
from geminga_bookie.wire.session_limits import Shared
from geminga_bookie.wire.unfinished import FRAME_PATIENCE_S, SHARE_BYTES_MIN, UnfinishedFrames
from geminga_protocol.bookkeeper import v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import AUTH, EOK

KiB = 1024
MiB = 1 << 20
BOUND = 2 * MiB
FRAME = 256 * KiB


@pytest.fixture
def bookie() -> SlowBookie:
    return SlowBookie()


def large(ledger: int, size: int = FRAME) -> bytes:
    """An add of an entry of that size."""
    return b"".join(v3.encode_adds(ledger, KEY, 0, packets(ledger, [0], size), 1))


async def push(client: Client, data: bytes) -> None:
    """Send, also when nobody reads it."""
    try:
        await client.stream.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def test_memory_is_bounded(bookie: SlowBookie, autojump_clock: object) -> None:
    """50 connections with frames of which the last byte is missing."""
    shared = Shared(bookie, unfinished_bytes_max=BOUND)
    async with serving(bookie, shared=shared) as connect, trio.open_nursery() as nursery:
        clients = [connect() for _ in range(50)]
        for number, client in enumerate(clients):
            nursery.start_soon(push, client, large(number)[:-1])
        most = 0
        for _ in range(100):
            await trio.sleep(FRAME_PATIENCE_S / 10)
            most = max(most, shared.frames.bytes)
        assert BOUND // 4 < most <= 2 * BOUND
        nursery.cancel_scope.cancel()
    assert shared.frames.bytes == 0


async def test_others_go_on(bookie: SlowBookie, autojump_clock: object) -> None:
    """Beside connections that stall, small frames are felt by nobody, and large ones wait for a
    turn."""
    shared = Shared(bookie, unfinished_bytes_max=BOUND)
    async with serving(bookie, shared=shared) as connect, trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(push, connect(), large(number)[:-1])
        await trio.sleep(1)
        assert shared.frames.is_full
        began = trio.current_time()
        small = connect()
        await small.send(adds(0, 100, ledger=1000))
        await small.responses(100)
        assert trio.current_time() == began
        one = connect()
        nursery.start_soon(push, one, large(1001))
        await one.responses(1)
        assert trio.current_time() - began < 50 * FRAME_PATIENCE_S
        nursery.cancel_scope.cancel()


async def test_all_that_is_sent_comes(bookie: SlowBookie, autojump_clock: object) -> None:
    """Slow clients with large frames lose nothing, though all of them are above the bound."""
    shared = Shared(bookie, unfinished_bytes_max=BOUND)
    chance = random.Random(5)
    done = 0

    async def publish(client: Client, ledger: int) -> None:
        nonlocal done
        data = large(ledger, chance.randint(FRAME // 2, FRAME)) + adds(1, 20, ledger=ledger)
        at = 0
        while at < len(data):
            step = chance.randint(12 * KiB, 125 * KiB)
            await client.stream.send_all(data[at : at + step])
            at += step
            await trio.sleep(0.1)
        await client.responses(21)
        done += 1

    async with serving(bookie, shared=shared) as connect, trio.open_nursery() as nursery:
        for ledger in range(60):
            nursery.start_soon(publish, connect(), ledger)
    assert done == 60
    assert shared.frames.bytes == 0


async def test_a_turn_ends(bookie: SlowBookie, autojump_clock: object) -> None:
    """Also before a client that sends a byte now and then."""
    shared = Shared(bookie, unfinished_bytes_max=4 * MiB)
    async with serving(bookie, shared=shared) as connect, trio.open_nursery() as nursery:
        one, other = connect(), connect()
        nursery.start_soon(push, one, large(1, 4 * MiB)[: 3 * MiB])
        await trio.sleep(1)
        assert shared.frames.is_full

        async def drip() -> None:
            for _ in range(1000):
                await push(one, b"x")
                await trio.sleep(1)

        nursery.start_soon(drip)
        nursery.start_soon(push, other, large(2, 2 * MiB))
        with trio.fail_after(2 * FRAME_PATIENCE_S + 1):
            await other.responses(1)
        with trio.fail_after(2 * FRAME_PATIENCE_S), pytest.raises(EOFError):
            await one.frames(1)
        nursery.cancel_scope.cancel()


async def test_who_is_not_authenticated_waits_for_no_turn(
    bookie: SlowBookie, autojump_clock: object
) -> None:
    """Others would wait behind it."""
    shared = Shared(bookie, unfinished_bytes_max=BOUND)
    hello = v3.request(AUTH, 1)
    hello.authRequest.authPluginName, hello.authRequest.payload = NAME, bytes(60 * KiB)
    unfinished = v3.frame(hello)[:-1]
    async with (
        serving(bookie, shared=shared, auth=WordAuth()) as connect,
        trio.open_nursery() as nursery,
    ):
        one = connect()
        for number in range(ROUNDS):
            hello.authRequest.payload = b"word %d" % number
            assert (await one.call(hello)).status == EOK
        for _ in range(200):
            nursery.start_soon(push, connect(), unfinished)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        nursery.start_soon(push, one, large(1001))
        await one.responses(1)
        assert trio.current_time() == began
        nursery.cancel_scope.cancel()


async def test_turns_are_bounded_and_in_order() -> None:
    frames = UnfinishedFrames(400)
    await frames.take_turn(500)  # alone, it may be larger
    order: list[int] = []

    async def wait(size: int) -> None:
        await frames.take_turn(size)
        order.append(size)

    async with trio.open_nursery() as nursery:
        for size in (60, 30, 20, 90):
            nursery.start_soon(wait, size)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []
        frames.give_back(500)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(order) == [30, 60]
        frames.give_back(60)
        await trio.testing.wait_all_tasks_blocked()
        assert order[2:] == [20]
        frames.give_back(30)
        frames.give_back(20)
        await trio.testing.wait_all_tasks_blocked()
        assert order[3:] == [90]
        frames.give_back(90)
    await frames.take_turn(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 50)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    frames.give_back(100)
    await frames.take_turn(100)
    frames.give_back(100)
    assert not frames._turns_bytes


def test_shares() -> None:
    frames = UnfinishedFrames(BOUND)
    assert frames.share == BOUND // 4
    frames.connections = 4
    assert frames.share == BOUND // 16
    frames.connections = BOUND
    assert frames.share == SHARE_BYTES_MIN
    frames.bytes = BOUND // 4 - 1
    assert not frames.is_full
    frames.bytes += 1
    assert frames.is_full


async def test_a_client_that_goes_gives_back(bookie: MemoryBookie) -> None:
    shared = Shared(bookie, unfinished_bytes_max=BOUND)
    async with serving(bookie, shared=shared) as connect:
        for number in range(20):
            client = connect()
            await client.send(large(number)[: 100 * KiB])
            await trio.testing.wait_all_tasks_blocked()
            assert shared.frames.bytes == 100 * KiB
            await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert shared.frames.bytes == 0
