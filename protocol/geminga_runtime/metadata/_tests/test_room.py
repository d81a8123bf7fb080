"""A bound of requests under way."""

from __future__ import annotations

import trio
import trio.testing

from geminga_runtime.metadata.room import Room


async def test_callers_wait_in_turn() -> None:
    room = Room(requests_max=2, bytes_max=100)
    entered: list[int] = []

    async def enter(size_bytes: int) -> None:
        await room.acquire(size_bytes)
        entered.append(size_bytes)

    async with trio.open_nursery() as nursery:
        for size_bytes in (60, 50, 1, 2):
            nursery.start_soon(enter, size_bytes)
            await trio.testing.wait_all_tasks_blocked()
        assert entered == [60], "the small ones don't pass the large one"
        room.release(60)
        await trio.testing.wait_all_tasks_blocked()
        assert entered == [60, 50, 1], "two at once"
        room.release(50)
        await trio.testing.wait_all_tasks_blocked()
        assert entered == [60, 50, 1, 2]
    room.release(1)
    room.release(2)
    assert (room.requests, room.bytes) == (0, 0)


async def test_a_request_larger_than_the_room_is_alone() -> None:
    room = Room(requests_max=2, bytes_max=100)
    await room.acquire(1)
    with trio.move_on_after(0):
        await room.acquire(1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.acquire, 1000)
        await trio.testing.wait_all_tasks_blocked()
        assert room.bytes == 1, "who was cancelled takes no room"
        room.release(1)
    assert room.bytes == 1000
