"""When a connection is not read (PR-16, BR-22): each bound by itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.session import backpressure as bounds
from geminga_broker.session.backpressure import Backpressure
from geminga_broker.session.connections import Connections
from geminga_broker.session.gathering import GATHERED_BYTES_MAX, StorageTime
from geminga_broker.session.liveness import Liveness
from geminga_runtime.stream import FramedStream


class Shared:
    """What all connections hold together."""

    def __init__(self) -> None:
        self.requests_full = self.publish_buffer_full = False
        self.request_bytes = self.held_back = 0
        self.storage_time = StorageTime()

    def publish_pending(self, size_bytes: int) -> None:
        pass

    def on_publish_buffer_drained(self, callback: Callable[[], None]) -> None:
        pass


def made() -> tuple[Backpressure, SimpleNamespace, Shared]:
    stream = SimpleNamespace(writable=True, on_writable=lambda callback: None)
    liveness = SimpleNamespace(pause=lambda held_back: None, resume=lambda: None)
    shared = Shared()
    found = Backpressure(
        cast(FramedStream, stream), cast(Connections, shared), cast(Liveness, liveness)
    )
    return found, stream, shared


def small_requests(one: Backpressure, count: int) -> None:
    for _ in range(abs(count)):
        (one.request_started if count > 0 else one.request_ended)(1)


async def test_commands_are_bounded_by_their_number(nursery: trio.Nursery) -> None:
    one, _, _ = made()
    small_requests(one, bounds.REQUESTS_MAX)
    assert not one.overloaded
    one.request_started(1)
    assert one.overloaded
    ready: list[bool] = []

    async def wait() -> None:
        await one.wait_ready()
        ready.append(True)

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    small_requests(one, -(bounds.REQUESTS_MAX // 2))
    await wait_all_tasks_blocked()
    assert not ready, "it is read again at half of the bound"
    small_requests(one, -1)
    await wait_all_tasks_blocked()
    assert ready


async def test_commands_are_bounded_by_their_bytes() -> None:
    one, _, shared = made()
    one.request_started(bounds.REQUEST_BYTES_MAX)
    assert not one.overloaded
    one.request_started(1)
    assert one.overloaded
    one.release()
    assert (one.overloaded, shared.request_bytes) == (False, 0)
    shared.requests_full = True
    one.request_started(bounds.REQUEST_BYTES_SHARE)
    assert not one.overloaded, "so much each connection has, whatever the others hold"
    one.request_started(1)
    assert one.overloaded


async def test_publishes_are_bounded_by_their_bytes_and_their_number() -> None:
    for entries, size_bytes in (
        (1, bounds.PENDING_PUBLISH_BYTES_MAX),
        (bounds.PENDING_PUBLISH_BYTES_MAX // bounds.PENDING_ENTRY_BYTES + 1, 0),
    ):
        one, _, _ = made()
        one.publish_pending(entries, size_bytes)
        assert one.overloaded
        one.publish_pending(-entries, -size_bytes)
        assert not one.overloaded


@pytest.mark.parametrize("what", ["stream", "buffer", "rate"])
async def test_what_else_holds_a_connection_back(what: str, autojump_clock: MockClock) -> None:
    one, stream, shared = made()
    assert not one.overloaded
    if what == "stream":
        stream.writable = False
    elif what == "buffer":
        shared.publish_buffer_full = True
    else:
        one.throttle(3.0)
        one.throttle(1.0)
        await trio.sleep(2.9)
    assert one.overloaded
    if what == "rate":
        await one.wait_ready()
        assert trio.current_time() >= 3.0


async def test_a_connection_waits_until_its_entries_are_stored(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    one, _, _ = made()
    assert not one.gathers
    one.publish_pending(2, 1000)
    assert one.gathers
    passed: list[float] = []

    async def wait() -> None:
        await one.wait_stored()
        passed.append(trio.current_time())

    began = trio.current_time()
    nursery.start_soon(wait)
    await trio.sleep(0.001)
    one.publish_pending(-1, -500)
    await trio.sleep(0.001)
    assert not passed
    one.publish_pending(-1, -500)
    await trio.sleep(0.001)
    assert passed == [pytest.approx(began + 0.002)]
    one.publish_pending(1, GATHERED_BYTES_MAX)
    assert not one.gathers, "a client that sends much is read on"
