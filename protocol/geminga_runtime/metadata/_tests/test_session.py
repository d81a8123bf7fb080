"""The session as state, under virtual time."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from geminga_runtime.metadata.api import SessionExpired, SessionPhase
from geminga_runtime.metadata.session import SessionTracker

TIMEOUT_S = 30.0


class Server:
    """When it was last heard of."""

    def __init__(self) -> None:
        self.heard_at = trio.current_time()
        self.losses = 0

    def deadline(self) -> float:
        return self.heard_at + TIMEOUT_S

    def count(self) -> None:
        self.losses += 1


def start() -> tuple[Server, SessionTracker]:
    server = Server()
    return server, SessionTracker(deadline=server.deadline, on_loss=server.count)


async def test_our_own_clock_ends_a_session(autojump_clock: trio.testing.MockClock) -> None:
    server, tracker = start()
    tracker.suspend()
    began = trio.current_time()
    assert tracker.session.phase is SessionPhase.SUSPENDED
    session = await tracker.wait_change(1)
    assert trio.current_time() - began == pytest.approx(TIMEOUT_S)
    assert (session.epoch, session.phase) == (2, SessionPhase.LOST)
    assert session.lost_at == pytest.approx(began + TIMEOUT_S)
    assert server.losses == 1
    tracker.lose()
    assert tracker.session.epoch == 2, "one loss is one epoch"


async def test_who_looks_late_finds_the_loss_first(autojump_clock: trio.testing.MockClock) -> None:
    """A paused process, connected for all that it knows."""
    server, tracker = start()
    lost_at = server.deadline()
    await trio.sleep(10 * TIMEOUT_S)
    with pytest.raises(SessionExpired):
        tracker.check_epoch(1)
    assert tracker.session.lost_at == lost_at
    tracker.connect()
    server.heard_at = trio.current_time()
    tracker.check_epoch(2)


async def test_contact_moves_the_loss(autojump_clock: trio.testing.MockClock) -> None:
    server, tracker = start()

    async def answer() -> None:
        for _ in range(5):
            await trio.sleep(TIMEOUT_S / 2)
            server.heard_at = trio.current_time()

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        await tracker.wait_change(1)
    assert trio.current_time() - began == pytest.approx(3.5 * TIMEOUT_S)


async def test_waiting_for_a_connection(autojump_clock: trio.testing.MockClock) -> None:
    _, tracker = start()
    phases: list[SessionPhase] = []

    async def wait() -> None:
        phases.append((await tracker.wait_connected()).phase)

    tracker.suspend()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        assert phases == []
        tracker.connect()
    tracker.suspend()
    await wait()
    tracker.close()
    await wait()
    assert phases == [SessionPhase.CONNECTED, SessionPhase.LOST, SessionPhase.CLOSED]


async def test_no_change_is_missed() -> None:
    """Who comes back late sees the last state, however much has happened."""
    tracker = SessionTracker()
    assert tracker.session.lost_at == math.inf
    for _ in range(1000):
        tracker.lose()
        tracker.connect()
    session = await tracker.wait_change(1)
    assert (session.epoch, session.phase) == (1001, SessionPhase.CONNECTED)


async def test_a_closed_store_stays_closed() -> None:
    tracker = SessionTracker()
    tracker.close()
    tracker.close()
    tracker.connect()
    tracker.lose()
    assert tracker.session.phase is SessionPhase.CLOSED
    assert tracker.session.epoch == 2
    with pytest.raises(SessionExpired):
        await tracker.wait_change(2)


async def test_who_waits_for_the_next_session_does_not_spin(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The time at which the last one was lost has passed: it is no deadline."""
    tracker = SessionTracker()
    tracker.lose()
    with trio.move_on_after(60) as scope:
        await tracker.wait_change(2)
    assert scope.cancelled_caught
