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
        assert sorted(entered) == [1, 50, 60], "two at once"
        room.release(50)
        await trio.testing.wait_all_tasks_blocked()
        assert entered[-1] == 2
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


async def test_room_that_is_given_back_in_one_turn_is_taken_in_the_next() -> None:
    room = Room(requests_max=50, bytes_max=100)
    for _ in range(50):
        await room.acquire(1)
    entered: list[int] = []

    async def enter(number: int) -> None:
        await room.acquire(1)
        entered.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(enter, number)
        await trio.testing.wait_all_tasks_blocked()
        assert not entered
        for _ in range(50):
            room.release(1)
        for _ in range(2):  # tasks of one turn run in any order
            await trio.lowlevel.checkpoint()
        assert len(entered) == 50
        for _ in range(50):
            room.release(1)
    assert (room.requests, room.bytes) == (10, 10)


async def test_who_waits_behind_a_large_request_enters_when_that_is_cancelled() -> None:
    room = Room(requests_max=3, bytes_max=100)
    await room.acquire(60)
    async with trio.open_nursery() as nursery:
        waiting = await nursery.start(_waiting, room, 50)
        nursery.start_soon(room.acquire, 40)
        await trio.testing.wait_all_tasks_blocked()
        assert room.bytes == 60
        waiting.cancel()
    assert (room.requests, room.bytes) == (2, 100)


async def _waiting(
    room: Room, size_bytes: int, task_status: trio.TaskStatus[trio.CancelScope]
) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await room.acquire(size_bytes)
