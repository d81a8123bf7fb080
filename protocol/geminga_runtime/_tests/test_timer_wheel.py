"""TimerWheel in virtual time."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from geminga_runtime.timer_wheel import TimerWheel

Clock = trio.testing.MockClock


async def test_runs_in_order_and_never_early(autojump_clock: Clock, nursery: trio.Nursery) -> None:
    wheel = TimerWheel(tick_s=0.1)
    nursery.start_soon(wheel.run)
    ran: list[tuple[float, float]] = []
    start = trio.current_time()
    rng = random.Random(7)
    for _ in range(200):
        due = start + rng.uniform(0, 20)
        wheel.schedule(lambda due=due: ran.append((due, trio.current_time())), due - start)
    assert len(wheel) == 200
    await trio.sleep(21)
    assert len(ran) == 200
    assert len(wheel) == 0
    assert all(due <= at <= due + 0.1001 for due, at in ran)
    assert [at for _, at in ran] == sorted(at for _, at in ran)


async def test_earlier_timer_wakes_the_sleeper(
    autojump_clock: Clock, nursery: trio.Nursery
) -> None:
    wheel = TimerWheel()
    nursery.start_soon(wheel.run)
    ran: list[str] = []
    wheel.schedule(lambda: ran.append("late"), 100)
    await trio.sleep(1)
    wheel.schedule(lambda: ran.append("soon"), 1)
    await trio.sleep(1.1)
    assert ran == ["soon"]
    await trio.sleep(100)
    assert ran == ["soon", "late"]


async def test_cancel(autojump_clock: Clock, nursery: trio.Nursery) -> None:
    wheel = TimerWheel()
    nursery.start_soon(wheel.run)
    ran: list[str] = []
    kept = wheel.schedule(lambda: ran.append("kept"), 1)
    dropped = wheel.schedule(lambda: ran.append("dropped"), 1)
    assert dropped.active
    dropped.cancel()
    dropped.cancel()
    assert not dropped.active
    assert len(wheel) == 1
    await trio.sleep(2)
    assert ran == ["kept"]
    assert not kept.active
    kept.cancel()


async def test_cancelled_in_its_own_tick(autojump_clock: Clock, nursery: trio.Nursery) -> None:
    wheel = TimerWheel()
    ran: list[str] = []
    handles = []
    wheel.schedule(lambda: handles[0].cancel(), 1)
    handles.append(wheel.schedule(lambda: ran.append("second"), 1))
    nursery.start_soon(wheel.run)
    await trio.sleep(2)
    assert ran == []


async def test_reschedule_from_the_callback(autojump_clock: Clock, nursery: trio.Nursery) -> None:
    wheel = TimerWheel(tick_s=0.5)
    nursery.start_soon(wheel.run)
    times: list[float] = []

    def again() -> None:
        times.append(trio.current_time())
        wheel.schedule(again, 0)

    wheel.schedule(again, 0)
    await trio.sleep(5.2)
    assert 8 <= len(times) <= 12, "a delay of 0 in a callback does not spin"


async def test_defects_come_out(autojump_clock: Clock) -> None:
    wheel = TimerWheel()
    wheel.schedule(lambda: 1 // 0, 1)
    with pytest.raises(ZeroDivisionError):
        await wheel.run()


def test_refused_tick() -> None:
    with pytest.raises(ValueError, match="tick_s"):
        TimerWheel(tick_s=0)
