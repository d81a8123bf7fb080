"""Logs that are made in the task of who asks for them: others don't suffer from its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from geminga_broker.log._tests.world import NAME, World, publish
from geminga_broker.log.api import LogClosed
from geminga_broker.log.topic_log import TopicLog
from geminga_runtime.metadata.api import Node, Writes
from geminga_runtime.metadata.memory import MemoryMetadataStore


class HeldStore(MemoryMetadataStore):
    """Holds the next writes of ledgers, or reads of logs, before they are done."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[trio.Event] = []
        self.reads: list[trio.Event] = []

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        if self.writes:
            await self.writes.pop(0).wait()
        return await super().put_numbered(at, writes)

    async def get(self, path: str) -> Node | None:
        if self.reads and path.endswith(NAME):
            await self.reads.pop(0).wait()
        return await super().get(path)


async def test_whoever_waits_for_a_maker_that_is_cancelled_makes_the_log() -> None:
    world = World(store=HeldStore())
    assert isinstance(world.store, HeldStore)
    found: list[TopicLog] = []

    async with world.broker() as factory:
        making = trio.CancelScope()

        async def make() -> None:
            with making:
                await factory.open(NAME, here=True)

        async def wait() -> None:
            found.append(await factory.open(NAME))

        world.store.writes = [trio.Event()]  # for ever
        async with trio.open_nursery() as nursery:
            for job in (make, wait, wait):
                nursery.start_soon(job)
                await trio.testing.wait_all_tasks_blocked()
            assert not found
            making.cancel()
        assert len(found) == 2
        assert found[0] is found[1] is factory.logs[NAME]
        await publish(found[0], ["a"])


async def test_two_makers_at_once_have_one_log() -> None:
    async with World().broker() as factory:
        found: list[TopicLog] = []

        async def make() -> None:
            found.append(await factory.open(NAME, here=True))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(make)
        assert len({id(each) for each in found}) == 1
        assert len(found) == 3
        assert await factory.open(NAME, here=True) is found[0]


async def test_a_log_that_is_there_is_opened_whoever_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World(store=HeldStore())
    assert isinstance(world.store, HeldStore)
    async with world.broker() as factory:
        await publish(await factory.open(NAME), ["a"])
    async with world.broker() as factory:
        held = trio.Event()
        world.store.writes = [held]
        with trio.move_on_after(0.01) as scope:
            await factory.open(NAME, here=True)
        assert scope.cancelled_caught
        held.set()
        await trio.testing.wait_all_tasks_blocked()
        assert NAME in factory.logs, "its recovery ended with who asked for it"
        log = await factory.open(NAME)
        assert log.statistics().entries == 1


async def test_one_that_another_broker_is_just_making_is_recovered() -> None:
    """It was missing when its topic was checked, and is there when it is read."""
    world = World(store=HeldStore())
    assert isinstance(world.store, HeldStore)
    async with world.broker(crash=True) as first, world.broker() as second:
        held = trio.Event()
        world.store.reads = [held]
        found: list[TopicLog] = []

        async def make() -> None:
            found.append(await second.open(NAME, here=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make)
            await trio.testing.wait_all_tasks_blocked()
            await publish(await first.open(NAME), ["a", "b"])
            held.set()
        assert found[0].statistics().entries == 2


async def test_nothing_is_made_after_the_end() -> None:
    async with World().broker() as factory:
        pass
    with pytest.raises(LogClosed):
        await factory.open(NAME, here=True)
