"""What is made in a thread, when it is first asked for."""

from __future__ import annotations

import threading

import pytest
import trio

from geminga_runtime.single_flight import Late


async def test_made_once_beside_the_loop() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(threading.get_ident())
        return len(made)

    late = Late(make)
    found: list[int] = []

    async def ask() -> None:
        found.append(await late.get())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert found == [1, 1, 1]
    assert await late.get() == 1
    assert threading.get_ident() not in made


async def test_who_asks_after_a_failure_has_it_made_anew() -> None:
    fails = [True, False]

    def make() -> str:
        if fails.pop(0):
            raise ImportError("not there yet")
        return "made"

    late = Late(make)
    with pytest.raises(ImportError, match="not there yet"):
        await late.get()
    assert await late.get() == "made"
