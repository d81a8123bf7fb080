"""Waits and locks between tasks of more than one event loop, one after the other."""

from __future__ import annotations

import asyncio

import pytest

from geminga._bridge.waiting import AsyncHost, LoopLock


def test_a_lock_is_held_by_one_task_and_remembers_no_loop() -> None:
    lock = LoopLock()
    inside: list[int] = []

    async def enter(number: int) -> None:
        async with lock:
            inside.append(number)
            await asyncio.sleep(0)
            assert inside == [number]
            inside.clear()

    async def main() -> None:
        tasks = [asyncio.ensure_future(enter(number)) for number in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()  # while it waits
        await asyncio.wait(tasks)
        assert [each.cancelled() for each in tasks] == [False, False, True, False, False]
        for each in tasks[:2] + tasks[3:]:
            each.result()

    for _ in range(2):
        asyncio.run(main())
        assert not lock._turns


def test_calls_for_a_loop_that_is_closed_are_not_kept() -> None:
    async def main() -> AsyncHost:
        return AsyncHost()

    host = asyncio.run(main())
    for number in range(3):
        host.post(print, number)
    assert not host._posts


def test_a_listener_runs_in_the_loop_that_subscribes() -> None:
    async def make() -> AsyncHost:
        return AsyncHost()

    host = asyncio.run(make())

    async def main() -> None:
        done = asyncio.Event()

        async def work() -> None:
            done.set()

        host.start(work)
        await asyncio.wait_for(done.wait(), 60)

    asyncio.run(main())


@pytest.mark.parametrize("loops", [1, 2])
def test_a_waiter_is_told_in_its_own_loop(loops: int) -> None:
    async def make() -> AsyncHost:
        return AsyncHost()

    host = asyncio.run(make())

    async def main() -> None:
        waiter = host.waiter()
        await asyncio.to_thread(waiter.notify)
        await asyncio.wait_for(waiter._future, 60)

    for _ in range(loops):
        asyncio.run(main())
