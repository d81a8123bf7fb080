"""Tasks of a lasting nursery."""

from __future__ import annotations

import pytest
import trio

from geminga_runtime.lasting import open_lasting_nursery


async def test_tasks_serve_the_cleanup_of_a_cancelled_block(autojump_clock: object) -> None:
    """Also those that begin there; all end with the block."""
    asked, answered = trio.open_memory_channel[int](0), trio.open_memory_channel[int](0)
    ended: list[int] = []

    async def serve() -> None:
        try:
            async for number in asked[1]:
                await answered[0].send(number + 1)
        finally:
            ended.append(1)

    found: list[int] = []
    with trio.move_on_after(1):
        async with open_lasting_nursery() as nursery:
            nursery.start_soon(serve)
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(5, shield=True):
                    for number in range(2):
                        await asked[0].send(number)
                        found.append(await answered[1].receive())
                        nursery.start_soon(serve)
    assert (found, ended) == ([1, 2], [1, 1, 1])


async def test_a_task_that_fails_ends_the_block() -> None:
    async def fail() -> None:
        raise OSError("broken")

    with pytest.RaisesGroup(pytest.RaisesGroup(OSError)):
        async with open_lasting_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()


async def test_a_block_that_is_cancelled_when_it_begins() -> None:
    """Its tasks have begun, and must end with it."""
    for turns in range(20):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def begin() -> None:
                    async with open_lasting_nursery():
                        await trio.sleep_forever()

                nursery.start_soon(begin)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
