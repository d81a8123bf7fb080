"""A seed's order of tasks is its own, whatever else runs in the process."""

from __future__ import annotations

import threading
from random import Random

import trio
import trio.testing

from geminga_runtime._tests.scheduling import scheduled_by

TASKS = 5
TURNS = 10


def order_of(seed: int) -> list[int]:
    """In which order so many tasks came to turn, again and again."""
    order: list[int] = []

    async def note(number: int) -> None:
        for _ in range(TURNS):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(TASKS):
                nursery.start_soon(note, number)

    with scheduled_by(Random(seed)):
        trio.run(main, clock=trio.testing.MockClock())
    return order


def test_a_loop_of_another_thread_changes_nothing() -> None:
    """A broker that several tests share has its own loop, which draws too."""
    wanted = order_of(3)
    assert wanted != order_of(4)
    has_begun = threading.Event()
    is_over = threading.Event()

    async def spin() -> None:
        while not is_over.is_set():
            has_begun.set()
            await trio.lowlevel.checkpoint()

    async def others() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spin)
            nursery.start_soon(spin)

    thread = threading.Thread(target=trio.run, args=(others,))
    thread.start()
    try:
        assert has_begun.wait(10)
        assert [order_of(3) for _ in range(3)] == [wanted] * 3
    finally:
        is_over.set()
        thread.join(10)
