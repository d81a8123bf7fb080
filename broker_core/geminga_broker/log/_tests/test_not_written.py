"""Logs whose entries can't be written for a while, and what is said about it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie.client.api import BookieInfo
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log._tests.test_topic_log import KEEP, publish_in_vain, refuse_add
from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import LogWriteFailed
from geminga_broker.log.options import LogOptions
from geminga_broker.log.state import LogState
from geminga_protocol.ids import EARLIEST

OPTIONS = LogOptions(retention=KEEP)
WHY = "no bookie takes writes: bookie .* is read-only: the disk is full"


async def full(_bookie: MemoryBookie) -> BookieInfo:
    await trio.lowlevel.checkpoint()
    return BookieInfo(10, 1, "the disk is full")


def fill(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryBookie, "add", refuse_add)
    patch.setattr(MemoryBookie, "info", full)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "geminga_broker.log")
    return lambda: [record.getMessage() for record in caplog.records]


async def ledgers_made(world: World) -> int:
    made, _ = await world.store.put("/ledgers/idgen/ID-", b"", sequential=True)
    return int(made[-10:])


async def test_a_full_disk_is_told_once_and_costs_no_ledgers(
    autojump_clock: MockClock, lines: Callable[[], list[str]]
) -> None:
    world = World()
    async with world.broker(OPTIONS) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(5))
        before = await ledgers_made(world)
        for round_number in (1, 2):
            with pytest.MonkeyPatch.context() as patch:
                fill(patch)
                await publish_in_vain(log)
                with pytest.raises(LogWriteFailed, match=WHY):
                    await log.make_ready()
                await trio.sleep(2)
                with pytest.raises(LogWriteFailed, match=WHY):
                    await log.make_ready()
            await trio.sleep(2)
            await log.make_ready()
            await publish(log, ["after"])
            told = [line.partition(": ")[2] for line in lines()]
            assert (
                told
                == [
                    "entries were not written: disk full",
                    "entries are written again",
                ]
                * round_number
            )
        assert await ledgers_made(world) <= before + 5
        assert await drain(log.open_reader("r", EARLIEST)) == [*numbered(5), "after", "after"]


async def test_many_that_wait_for_a_ledger_make_one_attempt(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    asked: list[float] = []
    async with world.broker(OPTIONS) as broker:
        log = await broker.open(NAME)
        fill(monkeypatch)
        await publish_in_vain(log)
        await trio.sleep(2)

        async def slow(bookie: MemoryBookie) -> BookieInfo:
            asked.append(trio.current_time())
            await trio.sleep(0.2)
            return await full(bookie)

        async def one() -> None:
            with pytest.raises(LogWriteFailed, match=WHY):
                await log.make_ready()

        monkeypatch.setattr(MemoryBookie, "info", slow)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert len(asked) == 1


async def test_who_waits_for_a_ledger_may_leave(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    async with world.broker(OPTIONS) as broker:
        log = await broker.open(NAME)
        with pytest.MonkeyPatch.context() as patch:
            fill(patch)
            await publish_in_vain(log)
        await trio.sleep(2)

        async def slow(_bookie: MemoryBookie) -> BookieInfo:
            await trio.sleep(3)
            return BookieInfo(0, 0)

        monkeypatch.setattr(MemoryBookie, "info", slow)
        with trio.move_on_after(1) as scope:
            await log.make_ready()
        assert scope.cancelled_caught
        assert log.context.state is LogState.ROLLING
        await log.make_ready()
        await publish(log, ["x"])


async def test_the_metadata_store_is_told_besides_the_bookies(
    autojump_clock: MockClock, lines: Callable[[], list[str]]
) -> None:
    world = World()
    async with world.broker(OPTIONS) as broker:
        log = await broker.open(NAME)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryBookie, "add", refuse_add)
            world.store.set_available(False)
            await publish_in_vain(log)
            world.store.set_available(True)
        assert len(lines()) == 2
        assert "entries were not written: disk full" in lines()[0]
        assert "no new ledger: " in lines()[1]
