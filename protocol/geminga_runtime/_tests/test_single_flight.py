"""Calls that are shared."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from geminga_runtime.single_flight import SingleFlight


async def test_one_call_for_all(autojump_clock: MockClock) -> None:
    calls: list[str] = []
    shared: SingleFlight[str, int] = SingleFlight()
    got: list[int] = []

    async def call() -> int:
        calls.append("call")
        await trio.sleep(1)
        return len(calls)

    async def ask(key: str) -> None:
        got.append(await shared.run(key, call))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask, "a")
    assert (got, len(calls), len(shared)) == ([1, 1, 1], 1, 0)
    await ask("a")
    assert got[-1] == 2, "what is over is called again"


async def test_an_error_is_raised_in_all(autojump_clock: MockClock) -> None:
    shared: SingleFlight[str, int] = SingleFlight()
    told: list[str] = []

    async def call() -> int:
        await trio.sleep(1)
        raise ValueError("no")

    async def ask() -> None:
        with pytest.raises(ValueError, match="no") as found:
            await shared.run("a", call)
        told.append(str(found.value))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert told == ["no"] * 3


async def test_the_next_one_calls_when_the_first_is_cancelled(autojump_clock: MockClock) -> None:
    shared: SingleFlight[str, int] = SingleFlight()
    calls = 0
    got: list[int] = []

    async def call() -> int:
        nonlocal calls
        calls += 1
        await trio.sleep(1)
        return calls

    async def ask() -> None:
        got.append(await shared.run("a", call))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            async with trio.open_nursery() as first:
                first.start_soon(shared.run, "b", call)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                first.cancel_scope.cancel()
    assert got == [2, 2] or got == [3, 3] or len(got) == 2
