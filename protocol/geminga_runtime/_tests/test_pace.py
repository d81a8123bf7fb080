"""Tasks that would all go on in one turn of the loop, and connections that all end in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio
import trio.testing

from geminga_runtime.errors import ConnectionLost
from geminga_runtime.pace import ENDS_A_TURN, Pace
from geminga_runtime.server import serve
from geminga_runtime.stream import FramedStream


class Turned(trio.abc.Instrument):
    """Counts what is noted in each turn of the loop."""

    def __init__(self) -> None:
        self.noted: Counter[int] = Counter()
        self._turn = 0

    def before_io_wait(self, timeout: float) -> None:
        self._turn += 1

    def note(self) -> None:
        self.noted[self._turn] += 1


@contextmanager
def turned() -> Iterator[Turned]:
    turns = Turned()
    trio.lowlevel.add_instrument(turns)
    try:
        yield turns
    finally:
        trio.lowlevel.remove_instrument(turns)


async def test_so_many_pass_in_a_turn_in_order(nursery: trio.Nursery) -> None:
    pace, passed, waiting = Pace(3), [], []

    async def one(number: int) -> None:
        waiting.append(number)
        await pace.turn()
        passed.append(number)
        turns.note()

    with turned() as turns:
        for number in range(20):
            nursery.start_soon(one, number)
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(passed[:3]) == sorted(waiting[:3])
    places = {number: place // 3 for place, number in enumerate(waiting)}
    assert [places[number] for number in passed] == sorted(places.values())
    assert sum(turns.noted.values()) == 20
    assert max(turns.noted.values()) == 3


async def test_who_is_first_does_not_wait() -> None:
    pace = Pace(2)
    with trio.testing.assert_no_checkpoints():
        await pace.turn()
        await pace.turn()
    with trio.testing.assert_checkpoints():
        await pace.turn()
    await trio.testing.wait_all_tasks_blocked()
    with trio.testing.assert_no_checkpoints():
        await pace.turn()


async def test_the_loop_is_not_woken_while_something_is_left() -> None:
    pace = Pace(3)
    for left in (2, 1, 0):
        await pace.turn()
        woken = trio.lowlevel.current_statistics().run_sync_soon_queue_size
        assert woken == (not left)


async def test_who_is_cancelled_takes_no_place(nursery: trio.Nursery) -> None:
    pace = Pace(1)
    await pace.turn()
    passed = []

    async def one(number: int) -> None:
        await pace.turn()
        passed.append(number)

    with trio.CancelScope() as scope:
        scope.cancel()
        await pace.turn()
    assert scope.cancelled_caught
    for number in range(3):
        nursery.start_soon(one, number)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(passed) == [0, 1, 2]


async def test_connections_that_end_together_end_in_turns(nursery: trio.Nursery) -> None:
    many = 5 * ENDS_A_TURN
    began = ended = 0

    async def handler(stream: FramedStream) -> None:
        nonlocal began, ended
        began += 1
        try:
            data = await stream.receive()
        except ConnectionLost:
            data = b""
        assert not data
        ended += 1
        turns.note()

    [bound] = await nursery.start(partial(serve, handler, host="127.0.0.1"))
    clients = [await trio.open_tcp_stream(*bound) for _ in range(many)]
    while began < many:
        await trio.lowlevel.checkpoint()
    with turned() as turns:
        for client in clients:
            client.socket.close()
        while ended < many:
            await trio.lowlevel.checkpoint()
    assert max(turns.noted.values()) <= ENDS_A_TURN
    nursery.cancel_scope.cancel()
