"""Logs whose deletion a crash interrupts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import LogNotFound
from geminga_broker.log.catalog import DELETIONS
from geminga_broker.log.deletion import DELETION_S
from geminga_broker.log.options import LogOptions, Retention, Rollover
from geminga_protocol.ids import EARLIEST, LATEST
from geminga_runtime.metadata.api import StoreUnavailable

KEPT = LogOptions(rollover=Rollover(entries_max=3, min_s=0), retention=Retention(-1, -1))


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("step", range(14))
async def test_a_deletion_that_a_crash_cuts_off_is_finished_or_had_not_begun(
    step: int, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    left = step
    put, delete = world.store.put, world.store.delete
    with trio.CancelScope() as crash:

        async def come_to(write: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                crash.cancel()
            left -= 1
            await trio.lowlevel.checkpoint()
            return await write(*args, **options)

        async with world.broker(KEPT) as broker:
            log = await broker.open(NAME)
            await publish(log, numbered(5))
            for name in ("s", "t"):
                cursor = await log.open_cursor(name, initial=EARLIEST)
                cursor.ack_cumulative(cursor.read_position)
                await cursor.persist()
            monkeypatch.setattr(world.store, "put", partial(come_to, put))
            monkeypatch.setattr(world.store, "delete", partial(come_to, delete))
            await log.delete()
    assert crash.cancelled_caught or step >= 10
    monkeypatch.undo()
    async with world.broker() as broker:
        if starts:
            await broker.finish_deletions()
            assert await world.store.children(DELETIONS) == []
        try:
            log = await broker.open(NAME, create=False)
        except LogNotFound:
            assert [ledger_id async for ledger_id in broker.client.ledgers()] == []
            assert await broker.names("public/default/persistent") == []
        else:
            assert step < 4
            for name in ("s", "t"):
                assert await drain(log.cursors[name]) == numbered(4, 1)
        assert await drain((await broker.open(NAME)).open_reader("r", LATEST)) == []


async def test_a_start_goes_on_though_a_full_disk_takes_no_writes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise StoreUnavailable("disk full")

    world = World()
    async with world.broker(KEPT) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(5))
        await log.context.catalog.note_deletion()
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "delete", full)
            await broker.finish_deletions()
        assert "can't be finished yet: disk full" in caplog.text
        await broker.finish_deletions()
        assert await world.store.children(DELETIONS) == []
        assert await drain(log.open_reader("r", EARLIEST)) == numbered(5)


async def test_a_deletion_that_another_broker_has_just_begun_is_left_to_it() -> None:
    """To take it over would fence that broker in the middle: its caller would get an error."""
    world = World()
    async with world.broker(KEPT) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(5))
        await log.context.catalog.note_deletion()
        now_ms = broker.options.now_ms()
        await broker.finish_deletions(now_ms - DELETION_S * 1000)
        assert await world.store.children(DELETIONS) != []
        await broker.finish_deletions(now_ms + 1)
        assert await world.store.children(DELETIONS) == []
