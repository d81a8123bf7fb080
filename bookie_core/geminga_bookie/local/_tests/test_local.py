"""A bookie in another process keeps the contract, and says so when it is gone."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from geminga_bookie._tests.port_contract import (
    BookiePortContract,
    ImpossibleContract,
    ListingContract,
    OwnBookieContract,
)
from geminga_bookie._tests.support import (
    KEY,
    Outcomes,
    add,
    packet,
    packets,
    small_options,
)
from geminga_bookie.errors import (
    BookieUnavailable,
    BookkeeperError,
    LedgerFenced,
    NoSuchLedger,
    TooManyRequests,
)
from geminga_bookie.inprocess import BookieOptions, open_bookie
from geminga_bookie.local import frames
from geminga_bookie.local.client import LocalBookie, open_local_bookie
from geminga_bookie.local.server import LocalLimits, serve_local
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import BookieInfo, BookiePort
from geminga_runtime.message_frames import encode
from geminga_runtime.stream import FramedStream

ID = "bookie-1:3181"


@asynccontextmanager
async def served(
    bookie: BookiePort, limits: LocalLimits | None = None
) -> AsyncIterator[BookiePort]:
    """The bookie, behind a pair of sockets."""
    ends = [
        FramedStream(trio.SocketStream(trio.socket.from_stdlib_socket(end)), name="end")
        for end in socket.socketpair()
    ]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_local, bookie, ends[0], limits)
            async with open_local_bookie(ID, ends[1]) as port:
                yield port
    finally:
        ends[0].abort()


@pytest.fixture(params=["memory", "disk"])
async def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BookiePort]:
    options = (
        BookieOptions(bookie_id=ID, in_memory=True)
        if request.param == "memory"
        else small_options(tmp_path)
    )
    async with open_bookie(options) as local, served(local) as port:
        yield port


@pytest.fixture
def first_ledger() -> int:
    return 7


class TestBookiePort(BookiePortContract):
    """What every bookie does."""


class TestListing(ListingContract):
    """Lists of entries."""


class TestOwnBookie(OwnBookieContract):
    """What ours do beyond that."""


class TestWhatNoLedgerCanHave(ImpossibleContract):
    """What all refuse."""


class _Silent(MemoryBookie):
    """Answers nothing about entries."""

    def __init__(self) -> None:
        super().__init__(ID)
        self.added = 0
        self.reading = 0

    def add(self, *args: object, **more: object) -> None:
        self.added += 1

    async def read(self, *args: object, **more: object) -> list[bytes]:
        self.reading += 1
        try:
            await trio.sleep_forever()
        finally:
            self.reading -= 1
        raise AssertionError("it sleeps")


async def test_a_loss_fails_all_requests_once() -> None:
    bookie = _Silent()
    here, there = memory_stream_pair()
    outcomes = Outcomes()
    failed: list[BookkeeperError] = []

    async def read(port: BookiePort) -> None:
        with pytest.raises(BookieUnavailable) as caught:
            await port.read(1, 0, entries_max=1, bytes_max=1)
        failed.append(caught.value)

    async with (
        open_local_bookie(ID, FramedStream(here, name="bookie")) as port,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve_local, bookie, FramedStream(there, name="client"))
        port.add(1, KEY, 0, packets(1, range(5)), outcomes)
        nursery.start_soon(read, port)
        await wait_all_tasks_blocked()
        assert (bookie.added, bookie.reading) == (1, 1)
        await trio.aclose_forcefully(there)
        await outcomes.wait_for(5)
        port.add(1, KEY, 5, packets(1, range(5, 7)), outcomes)
        await outcomes.wait_for(7)
    assert bookie.reading == 0
    assert [(first, count, type(error)) for first, count, error in outcomes.runs] == [
        (0, 5, BookieUnavailable),
        (5, 2, BookieUnavailable),
    ]
    assert len(failed) == 1
    with pytest.raises(BookieUnavailable, match="closed the connection"):
        await port.info()


async def test_a_cancelled_request_ends_at_the_bookie() -> None:
    bookie = _Silent()
    async with served(bookie) as port:
        with trio.move_on_after(0.05):
            await port.read(1, 0, entries_max=1, bytes_max=1)
        with trio.fail_after(60):
            while bookie.reading:  # noqa: ASYNC110
                await trio.sleep(0.005)
        await port.info()


async def test_why_it_is_read_only_crosses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(_bookie: MemoryBookie) -> BookieInfo:
        await trio.lowlevel.checkpoint()
        return BookieInfo(10, 1, "full")

    monkeypatch.setattr(MemoryBookie, "info", full)
    async with served(MemoryBookie(ID)) as port:
        assert await port.info() == BookieInfo(10, 1, "full")


async def test_errors_cross_as_they_are() -> None:
    async with served(MemoryBookie(ID)) as port:
        with pytest.raises(NoSuchLedger):
            await port.read(9, 0, entries_max=1, bytes_max=1)
        await add(port, 1, range(3))
        await port.fence(1, KEY)
        outcomes = Outcomes()
        port.add(1, KEY, 3, packets(1, range(3, 5)), outcomes)
        await outcomes.wait_for(2)
        assert [type(each) for each in outcomes.errors] == [LedgerFenced]

    class Special(LedgerFenced):
        pass

    assert frames.kind_of(Special()) == "LedgerFenced"
    assert type(frames.error_of("Unheard", "of")) is BookkeeperError


async def test_bounds_of_the_client() -> None:
    here, there = memory_stream_pair()
    bookie = LocalBookie(ID, FramedStream(here, name="bookie"), unanswered_bytes_max=1000)
    outcomes = Outcomes()
    bookie.add(1, KEY, 0, [bytes(2000)], outcomes)  # alone it may be larger
    bookie.add(1, KEY, 1, [b"x"], outcomes)
    await outcomes.wait_for(1)
    assert [type(each) for each in outcomes.errors] == [TooManyRequests]
    await there.aclose()


async def test_the_server_reads_no_more_than_is_answered() -> None:
    bookie = _Silent()
    here, there = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        limits = LocalLimits(unanswered_bytes_max=10_000)
        nursery.start_soon(serve_local, bookie, FramedStream(there, name="client"), limits)
        for number in range(100):
            add = frames.Add(1, KEY, number, [packet(1, number, size=1000)], False)
            await here.send_all(encode(number + 1, add))
            await wait_all_tasks_blocked()
        assert bookie.added == 10
        nursery.cancel_scope.cancel()


async def test_reads_at_once_and_calls_are_bounded() -> None:
    bookie = _Silent()
    async with trio.open_nursery() as nursery:
        limits = LocalLimits(reads_at_once=2, calls_max=5)
        async with served(bookie, limits) as port:
            refused: list[int] = []

            async def read(number: int) -> None:
                try:
                    await port.read(1, number, entries_max=1, bytes_max=1)
                except TooManyRequests:
                    refused.append(number)

            for number in range(7):
                nursery.start_soon(read, number)
            with trio.fail_after(60):
                while len(refused) < 2:  # noqa: ASYNC110
                    await trio.sleep(0.005)
            assert bookie.reading == 2
            nursery.cancel_scope.cancel()


async def test_garbage_ends_the_connection() -> None:
    for garbage in (b"\xff\xff\xff\xff", b"\0\0\0\1\xc1"):
        here, there = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_local, MemoryBookie(ID), FramedStream(there, name="client"))
            await here.send_all(garbage)


async def test_an_answer_that_fits_no_add() -> None:
    here, there = memory_stream_pair()
    outcomes = Outcomes()
    async with open_local_bookie(ID, FramedStream(here, name="bookie")) as port:
        port.add(1, KEY, 0, packets(1, range(2)), outcomes)
        await there.send_all(encode(1, frames.Added(0, 3)))
        await outcomes.wait_for(2)
    assert [type(each) for each in outcomes.errors] == [BookieUnavailable]
