from __future__ import annotations

import math

import trio
import trio.testing

from geminga._connection.alarm import Alarm


async def test_calls_at_the_earliest_time(autojump_clock: trio.testing.MockClock) -> None:
    called: list[float] = []
    answers = [math.inf, 9.0, math.inf, math.inf]
    began_s = trio.current_time()

    def callback(now_s: float) -> float:
        called.append(now_s - began_s)
        return began_s + answers.pop(0)

    alarm = Alarm(callback)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.run)
        alarm.at(began_s + 7)
        alarm.at(began_s + 5)
        alarm.at(began_s + 6)
        await trio.sleep(6)
        assert called == [5.0]
        alarm.now()
        await trio.testing.wait_all_tasks_blocked()
        assert called == [5.0, 6.0]
        await trio.sleep(4)
        assert called == [5.0, 6.0, 9.0]
        alarm.at(began_s)
        await trio.testing.wait_all_tasks_blocked()
        assert called == [5.0, 6.0, 9.0, 10.0]
        nursery.cancel_scope.cancel()
