"""The metadata store on ZooKeeper keeps the loop, the session and its clock from others' limits."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing
from kazoo.handlers import utils
from kazoo.protocol.connection import PING_XID
from kazoo.protocol.serialization import Exists, reply_header_struct

from compat_tests.apache.test_zookeeper_faults import (
    LIVES_S,
    next_lost,
    opened,
    phase_of,
    relayed,
)
from compat_tests.apache.zookeeper import ZooKeeperServer
from geminga_runtime.metadata import zookeeper_link
from geminga_runtime.metadata._tests.contract_session import WAIT_S, until
from geminga_runtime.metadata.api import (
    SessionPhase,
    StoreUnavailable,
    ValueTooLarge,
)
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
from geminga_runtime.metadata.zookeeper_session import REQUESTS_MAX, ZooKeeperSession
from geminga_runtime.metadata.zookeeper_wire import NotSent

pytestmark = pytest.mark.java

MORE_THAN_WAKE = 1000
"""More than a socket pair takes single bytes."""
_numbers = itertools.count()


@pytest.fixture
def chroot() -> str:
    return f"/bounds/{next(_numbers)}"


@pytest.fixture
async def store(server: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeperMetadataStore]:
    async with opened(server, chroot) as store:
        yield store


async def end_watches(server: ZooKeeperServer, chroot: str) -> None:
    async with relayed(server) as (relay, port), opened(server, chroot, port=port) as store:
        relay.cut()
        await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
        for number in range(MORE_THAN_WAKE):
            async with store.watch(f"/w{number}"):
                pass
        relay.heal()
        await store.put("/a", b"")


async def send_much(server: ZooKeeperServer, chroot: str) -> None:
    async with relayed(server) as (relay, port), opened(server, chroot, port=port) as store:
        answers: list[Exception | None] = []
        relay.cut()
        await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
        for _ in range(MORE_THAN_WAKE):
            store._calls.send(Exists("/", None), lambda _value, error: answers.append(error))
        relay.heal()
        await until(lambda: len(answers) == MORE_THAN_WAKE)
        assert all(isinstance(answer, NotSent) for answer in answers)
        answers.clear()
        for _ in range(MORE_THAN_WAKE):
            store._calls.send(Exists("/", None), lambda _value, error: answers.append(error))
        await until(lambda: len(answers) == MORE_THAN_WAKE)
        assert set(answers) == {None}


@pytest.mark.parametrize("work", [end_watches, send_much])
async def test_the_loop_never_waits_for_kazoo(
    server: ZooKeeperServer, chroot: str, work: Callable[[ZooKeeperServer, str], Awaitable[None]]
) -> None:
    """Its thread reads nothing of the pair by which it is woken while it connects. A loop that
    waits can't be cancelled: it has a thread of its own here."""
    with trio.fail_after(2 * WAIT_S):
        await trio.to_thread.run_sync(
            partial(trio.run, work, server, chroot), abandon_on_cancel=True
        )


async def test_who_waited_for_room_needs_a_connection(server: ZooKeeperServer, chroot: str) -> None:
    """Without one nobody would answer it, not even when the session is lost."""
    async with relayed(server) as (relay, port), opened(server, chroot, port=port) as store:
        room = store._calls._room
        for _ in range(REQUESTS_MAX):
            await room.acquire(0)
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                with pytest.raises(StoreUnavailable, match="nothing was sent"):
                    await store.get("/a")

            nursery.start_soon(get)
            await trio.testing.wait_all_tasks_blocked()
            relay.cut()
            await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
            store._calls._link.contact_at -= LIVES_S + 1
            assert phase_of(store) is SessionPhase.LOST
            for _ in range(REQUESTS_MAX):
                room.release(0)


@pytest.mark.parametrize(
    ("path", "error"), [("/a\udc80", ValueError), ("/" + "a" * 0xFFFFF, ValueTooLarge)]
)
async def test_a_path_that_can_not_be_sent(
    store: ZooKeeperMetadataStore, path: str, error: type[Exception]
) -> None:
    """In kazoo's thread it would end the session, or the connection again and again."""
    epoch, connection = store.session.epoch, store._calls._connection
    for call in (store.get, store.exists, store.children, store.delete):
        with pytest.raises(error):
            await call(path)
    with pytest.raises(error):
        await store.put(path, b"")
    with pytest.raises(error):
        async with store.watch(path):
            pass
    await store.put("/a", b"")
    assert (store.session.epoch, store._calls._connection) == (epoch, connection)


async def test_servers_share_the_time_of_a_session(
    server: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes no connection must leave time for the others."""
    timeouts: list[float] = []
    connect = utils.create_tcp_connection

    def connecting(*given: object, **options: object) -> object:
        timeouts.append(options["timeout"])  # type: ignore[arg-type]  # kazoo has no types
        return connect(*given, **options)

    monkeypatch.setattr(utils, "create_tcp_connection", connecting)
    hosts = ",".join([f"127.0.0.1:{server.port}"] * 3)
    store = await ZooKeeperMetadataStore.open(f"zk:{hosts}{chroot}", session_timeout_s=LIVES_S)
    await store.aclose()
    assert timeouts == [LIVES_S / 3]


async def test_a_dropped_change_is_told_at_once(
    store: ZooKeeperMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the next answer, which an idle store gets much later."""
    async with store.watch("/w") as changes:
        monkeypatch.setattr(zookeeper_link, "CHANGES_BYTES_MAX", 0)
        await trio.to_thread.run_sync(store._calls._link.on_change, 1, "/w")
        await next_lost(changes)


async def test_a_close_needs_no_thread_of_others(server: ZooKeeperServer, chroot: str) -> None:
    async with opened(server, chroot) as other:
        store = await ZooKeeperMetadataStore.open(f"{server.url}{chroot}")
        await store.put("/mine", b"", epoch=store.session.epoch)
        limiter = trio.to_thread.current_default_thread_limiter()
        taken = [object() for _ in range(int(limiter.total_tokens))]
        for each in taken:
            limiter.acquire_on_behalf_of_nowait(each)
        try:
            await store.aclose()
        finally:
            for each in taken:
                limiter.release_on_behalf_of(each)
        assert not await other.exists("/mine")


def unconnected() -> ZooKeeperSession:
    return ZooKeeperSession(
        "127.0.0.1:1", 10.0, connected=int, changed=lambda *_: None, overflowed=int
    )


async def test_contact_of_the_next_session_is_none_of_the_last_one() -> None:
    """kazoo's thread has a new session before the loop hears that the last one has ended."""
    session = unconnected()
    link = session._link
    link.contact_at, link.session_id = time.monotonic(), 7
    session.on_up(1, 7)
    assert session.tracker.session.phase is SessionPhase.CONNECTED
    link.session_id, link.contact_at = 8, time.monotonic()
    lost = session.tracker.session
    assert (lost.epoch, lost.phase) == (2, SessionPhase.LOST)
    assert link.ended is None, "the new session is not to be closed"
    session.on_gone(1, 7)
    session.on_up(2, 8)
    assert session.tracker.session.phase is SessionPhase.CONNECTED
    assert session.tracker.session.epoch == 2


async def test_a_late_answer_is_of_the_earlier_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    link = unconnected()._link
    connection = link._client._connection
    now = 100.0
    monkeypatch.setattr("geminga_runtime.metadata.zookeeper_wire.time.monotonic", lambda: now)
    answer = reply_header_struct.pack(PING_XID, 0, 0)
    received = [len(answer).to_bytes(4, "big"), answer] * 2
    monkeypatch.setattr(connection, "_write", lambda _data, _timeout: None)
    monkeypatch.setattr(connection, "_read", lambda _length, _timeout: received.pop(0))
    connection._send_ping(1.0)
    now = 103.0
    connection._send_ping(1.0)
    connection._read_socket(1.0)
    assert link.contact_at == 100.0
    connection._read_socket(1.0)
    assert link.contact_at == 103.0


async def test_an_answer_that_can_not_be_read(
    store: ZooKeeperMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No exception of kazoo's or of Python's reaches the store's callers."""

    def damaged(*_: object) -> None:
        raise IndexError("kazoo reads behind the end")

    await store.put("/a", b"")
    monkeypatch.setattr(Exists, "deserialize", damaged)
    with pytest.raises(StoreUnavailable, match="can't be read"):
        await store.exists("/a")
