"""When a connection's reader waits for what is being stored (BR-22)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.session.gathering import (
    GATHERED_BYTES_MAX,
    HOLD_S_MAX,
    PAUSE_S,
    PAUSE_S_MAX,
    SHORT_S,
    TRIAL,
    Gathering,
    StorageTime,
)

QUICK_S = SHORT_S / 2
SLOW_S = (SHORT_S + HOLD_S_MAX) / 2


async def held_s(one: Gathering, stored_after_s: float) -> float:
    """How long the reader waits for storage that takes so long."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.wait)
        await trio.sleep(stored_after_s)
        one.all_stored()
    return trio.current_time() - began


async def pass_trial(one: Gathering, stored_after_s: float) -> None:
    for _ in range(TRIAL):
        await held_s(one, stored_after_s)


async def test_only_little_is_waited_for() -> None:
    one = Gathering(StorageTime())
    assert not one.is_due(0)
    assert one.is_due(1)
    assert one.is_due(GATHERED_BYTES_MAX - 1)
    assert not one.is_due(GATHERED_BYTES_MAX)


async def test_the_reader_goes_on_once_all_is_stored(autojump_clock: MockClock) -> None:
    one = Gathering(StorageTime())
    assert await held_s(one, QUICK_S) == pytest.approx(QUICK_S)


async def test_the_reader_goes_on_without_storage(autojump_clock: MockClock) -> None:
    """Acknowledgements and pings come on the same connection."""
    one = Gathering(StorageTime())
    began = trio.current_time()
    await one.wait()
    assert trio.current_time() - began == pytest.approx(HOLD_S_MAX)


async def test_what_was_stored_before_ends_no_later_wait(autojump_clock: MockClock) -> None:
    one = Gathering(StorageTime())
    one.all_stored()
    began = trio.current_time()
    await one.wait()
    one.all_stored()
    await one.wait()
    assert trio.current_time() - began == pytest.approx(2 * HOLD_S_MAX)


async def test_a_cancelled_wait_leaves_nothing(autojump_clock: MockClock) -> None:
    one = Gathering(StorageTime())
    with trio.move_on_after(QUICK_S):
        await one.wait()
    one.all_stored()
    assert one.is_due(1)
    began = trio.current_time()
    await one.wait()
    assert trio.current_time() - began == pytest.approx(HOLD_S_MAX)


async def test_slow_storage_is_not_waited_for(autojump_clock: MockClock) -> None:
    """Nor after a while: a trial in which it is slow again lengthens the pause, up to a bound."""
    one = Gathering(StorageTime())
    pauses: list[float] = []
    for _ in range(8):
        await pass_trial(one, SLOW_S)
        began = trio.current_time()
        for _ in range(1000):
            if one.is_due(1):
                break
            await trio.sleep(PAUSE_S / 8)
        pauses.append(trio.current_time() - began)
    assert pauses[:3] == pytest.approx([PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S], rel=0.2)
    assert pauses[-2:] == pytest.approx([PAUSE_S_MAX] * 2, rel=0.02)
    await pass_trial(one, QUICK_S)
    assert one.is_due(1)
    await pass_trial(one, SLOW_S)
    await trio.sleep(1.1 * PAUSE_S)
    assert one.is_due(1), "after quick storage the pauses begin anew"


async def test_what_hangs_is_waited_for_once(autojump_clock: MockClock) -> None:
    """A consumer's commands on a connection whose producer hangs aren't held up each."""
    one = Gathering(StorageTime())
    assert one.is_due(1)
    await one.wait()
    assert not one.is_due(1)
    one.all_stored()
    assert one.is_due(1)


async def test_one_hiccup_is_one_trial(autojump_clock: MockClock) -> None:
    """However many connections wait while it lasts."""
    storage = StorageTime()
    async with trio.open_nursery() as nursery:
        for _ in range(8 * TRIAL):
            nursery.start_soon(Gathering(storage).wait)
    assert not Gathering(storage).is_due(1)
    await trio.sleep(1.01 * PAUSE_S)
    assert Gathering(storage).is_due(1)


async def test_a_few_slow_times_change_nothing(autojump_clock: MockClock) -> None:
    one = Gathering(StorageTime())
    for number in range(4 * TRIAL):
        await held_s(one, SLOW_S if number % 3 == 0 else QUICK_S)
        assert one.is_due(1)


async def test_connections_share_what_was_found_out(autojump_clock: MockClock) -> None:
    storage = StorageTime()
    await pass_trial(Gathering(storage), SLOW_S)
    assert not Gathering(storage).is_due(1)
