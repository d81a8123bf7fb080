"""Writes of a cursor's node whose outcome isn't known: the next ones find out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
from trio.testing import MockClock

from geminga_broker.log._tests.held import SteppedStore
from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import Ack, LogWriteFailed
from geminga_broker.log.cursors import UNBORN_MAX
from geminga_broker.log.options import LogOptions
from geminga_protocol.ids import EARLIEST
from geminga_runtime.metadata.api import StoreUnavailable


class Outages(SteppedStore):
    """Writes of cursors fail as `outcomes` say: True after they were made, False before."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[bool] = []

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        is_cursor = operation == "put" and f"{NAME}/" in path
        outcome = self.outcomes.pop(0) if is_cursor and self.outcomes else None
        if outcome is False:
            raise StoreUnavailable("not sent")
        yield
        if outcome is True:
            raise StoreUnavailable("no answer")


def options() -> LogOptions:
    """No two writes of a node look the same."""
    times = count()
    return LogOptions(now_ms=lambda: next(times))


@pytest.mark.parametrize("outcomes", [[True], [True, False], [False, True, False, False]])
async def test_a_creation_is_tried_again(autojump_clock: MockClock, outcomes: list[bool]) -> None:
    store = Outages()
    world = World(store=store)
    async with world.broker(options()) as broker:
        log = await broker.open(NAME)
        store.outcomes = [*outcomes]
        for _ in outcomes:
            with pytest.raises(LogWriteFailed):
                await log.open_cursor("s", initial=EARLIEST)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(3))
        cursor.ack([Ack(positions[0])])
        await cursor.persist()
    async with world.broker() as broker:
        assert await drain((await broker.open(NAME)).cursors["s"]) == ["m1", "m2"]


@pytest.mark.parametrize("outcomes", [[True], [True, False], [False, True, False, False]])
async def test_properties_are_set_again(autojump_clock: MockClock, outcomes: list[bool]) -> None:
    store = Outages()
    world = World(store=store)
    async with world.broker(options()) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        store.outcomes = [*outcomes]
        for number in range(len(outcomes)):
            with pytest.raises(LogWriteFailed):
                await cursor.writer.set_properties({"n": str(number)})
        await cursor.writer.set_properties({"n": "last"})
    async with world.broker() as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert cursor.cursor_properties == {"n": "last"}


async def test_creations_that_nobody_tries_again_take_no_room(autojump_clock: MockClock) -> None:
    store = Outages()
    async with World(store=store).broker(options()) as broker:
        log = await broker.open(NAME)
        store.outcomes = [False] * (UNBORN_MAX + 9)
        while store.outcomes:
            with pytest.raises(LogWriteFailed):
                await log.open_cursor(f"s{len(store.outcomes)}", initial=EARLIEST)
        assert len(log._cursors._unborn) == UNBORN_MAX
