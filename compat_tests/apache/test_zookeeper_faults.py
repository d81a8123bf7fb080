"""The metadata store while ZooKeeper is cut off, paused, killed, or says that the session ended.

Where a session must live it has a minute, which no busy machine takes; where it must end, five
seconds. Nothing is timed: each wait is for a state.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from compat_tests.apache.relay import Relay
from compat_tests.apache.zookeeper import ZooKeeperServer
from geminga_runtime.metadata import zookeeper_link, zookeeper_session, zookeeper_wire
from geminga_runtime.metadata._tests.contract_session import WAIT_S, drain, until
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    Change,
    Notification,
    SessionExpired,
    SessionPhase,
    StoreUnavailable,
    ValueTooLarge,
)
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

LIVES_S = 60.0
ENDS_S = 5.0
_numbers = itertools.count()


@pytest.fixture
def chroot(server: ZooKeeperServer) -> Iterator[str]:
    yield f"/faults/{next(_numbers)}"
    server.resume()


@asynccontextmanager
async def opened(
    server: ZooKeeperServer, chroot: str, session_timeout_s: float = LIVES_S, port: int = 0
) -> AsyncIterator[ZooKeeperMetadataStore]:
    url = f"zk:127.0.0.1:{port or server.port}{chroot}"
    store = await ZooKeeperMetadataStore.open(url, session_timeout_s=session_timeout_s)
    try:
        with trio.fail_after(2 * WAIT_S):
            yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def relayed(server: ZooKeeperServer) -> AsyncIterator[tuple[Relay, int]]:
    relay = Relay(server.port)
    async with trio.open_nursery() as nursery:
        yield relay, await nursery.start(relay.serve)
        nursery.cancel_scope.cancel()


def phase_of(store: ZooKeeperMetadataStore) -> SessionPhase:
    return store.session.phase


async def until_found(store: ZooKeeperMetadataStore, path: str, count: int) -> None:
    """Wait until that node has so many children."""
    while len(await store.children(path)) != count:  # noqa: ASYNC110
        await trio.sleep(0.005)


async def next_lost(changes: trio.MemoryReceiveChannel[Notification]) -> None:
    while (await changes.receive()).kind is not Change.LOST:
        pass


async def test_a_change_whose_answer_was_lost_is_not_sent_again(
    server: ZooKeeperServer, chroot: str
) -> None:
    async with (
        relayed(server) as (relay, port),
        opened(server, chroot, port=port) as store,
        opened(server, chroot) as direct,
    ):
        await direct.put("/s", b"")
        epoch = store.session.epoch
        relay.swallows = True
        async with trio.open_nursery() as nursery:

            async def put() -> None:
                with pytest.raises(StoreUnavailable, match="may have taken effect"):
                    await store.put("/s/n-", b"", MUST_NOT_EXIST, sequential=True)

            nursery.start_soon(put)
            await until_found(direct, "/s", 1)
            relay.cut()
            relay.swallows = False
        await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
        assert store.session.epoch == epoch
        relay.heal()
        assert len(await store.children("/s")) == 1
        await store.put("/after", b"")
        assert len(await direct.children("/s")) == 1
        assert store.session.epoch == epoch


async def test_what_was_not_sent_waits_for_the_connection(
    server: ZooKeeperServer, chroot: str
) -> None:
    async with relayed(server) as (relay, port), opened(server, chroot, port=port) as store:
        epoch = store.session.epoch
        await store.put("/e/mine", b"", epoch=epoch)
        relay.cut()
        await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.put, "/a", b"1")
            nursery.start_soon(store.get, "/a")
            relay.heal()
        node = await store.get("/a")
        assert node is not None
        assert (node.value, node.stat.version) == (b"1", 0)
        mine = await store.get("/e/mine")
        assert mine is not None
        assert mine.stat.created_by_self
        assert store.session.epoch == epoch


async def test_a_request_handed_over_too_late_is_not_sent_on_the_next_connection(
    server: ZooKeeperServer, chroot: str
) -> None:
    """kazoo would: an ephemeral node of the last session could be made in the next one."""
    async with opened(server, chroot) as store:
        answers: list[Exception | None] = []
        late = zookeeper_wire.Request(
            store._calls._link, 0, lambda _value, error: answers.append(error)
        )
        node = zookeeper_link.AddWatch(f"{chroot}/late")
        store._calls._link.submit(node, late)
        await until(lambda: bool(answers))
        assert isinstance(answers[0], zookeeper_wire.NotSent)
        await store.put("/a", b"")


async def test_watches_are_armed_again(server: ZooKeeperServer, chroot: str) -> None:
    async with (
        relayed(server) as (relay, port),
        opened(server, chroot, port=port) as store,
        opened(server, chroot) as direct,
        store.watch("/w") as changes,
        store.watch("/v") as beside,
    ):
        await direct.put("/w/a", b"")
        assert (await changes.receive()).kind is Change.CREATED
        relay.cut()
        await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
        await direct.put("/w/missed", b"")
        async with store.watch("/late") as late:
            relay.heal()
            for each in (changes, beside, late):
                await next_lost(each)
            await direct.put("/late", b"")
            assert await late.receive() == Notification(Change.CREATED, "/late")
        await direct.put("/w/b", b"")
        await store.exists("/")
        assert drain(changes) == [("created", "/w/b"), ("children", "/w")]


async def test_a_cache_forgets_before_others_are_told(server: ZooKeeperServer, chroot: str) -> None:
    """Changes were missed: who reads again, for whatever watch, gets what is there now."""
    async with (
        relayed(server) as (relay, port),
        opened(server, chroot, port=port) as store,
        opened(server, chroot) as direct,
    ):
        cached = await CachedMetadataStore.open(store, "/w")
        try:
            await direct.put("/w/a", b"old")
            for number in range(10):
                async with cached.watch("/w/a") as changes, cached.watch("/v"):
                    await cached.get("/w/a")
                    relay.cut()
                    await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
                    value = b"%d" % number
                    await direct.put("/w/a", value)
                    assert cached.statistics().answers == 1
                    relay.heal()
                    await next_lost(changes)
                    node = await cached.get("/w/a")
                    assert node is not None
                    assert node.value == value
        finally:
            await cached.aclose()


async def test_a_watch_that_ended_is_not_told(server: ZooKeeperServer, chroot: str) -> None:
    """The server forgets it too: of what it sends nothing is left to drop."""
    async with opened(server, chroot) as store:
        heard: list[str] = []
        original = store._calls.on_change
        store._calls.on_change = lambda kind, path: (heard.append(path), original(kind, path))[1]
        async with store.watch("/w"), store.watch("/w"):
            await store.put("/w", b"")
        async with store.watch("/v"):
            await store.put("/w", b"2")
            await store.put("/v", b"")
        assert heard == [f"{chroot}/w", f"{chroot}/v"] or heard == [
            chroot.rpartition("/")[0], chroot, f"{chroot}/w", f"{chroot}/v",
        ]  # fmt: skip


async def test_more_changes_than_are_kept(
    server: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, chroot) as store, store.watch("/w") as changes:
        monkeypatch.setattr(zookeeper_link, "CHANGES_BYTES_MAX", 0)
        await store.put("/w/a", b"")
        await next_lost(changes)
        monkeypatch.undo()
        await store.put("/w/b", b"")
        assert await changes.receive() == Notification(Change.CREATED, "/w/b")


async def test_a_paused_server(server: ZooKeeperServer, chroot: str) -> None:
    """Our own clock ends the session: nobody else could say so."""
    async with opened(server, chroot, ENDS_S) as store:
        epoch = store.session.epoch
        await store.put("/e/mine", b"", epoch=epoch)
        async with store.watch("/e") as changes:
            server.pause()
            under_way: list[Exception] = []
            async with trio.open_nursery() as nursery:

                async def put() -> None:
                    with pytest.raises(StoreUnavailable) as caught:
                        await store.put("/a", b"1")
                    under_way.append(caught.value)

                nursery.start_soon(put)
                session = await store.wait_change(epoch)
                assert (session.epoch, session.phase) == (epoch + 1, SessionPhase.LOST)
                assert session.lost_at <= trio.current_time()
                with pytest.raises(SessionExpired):
                    await store.put("/e/mine", b"", epoch=epoch)
                with pytest.raises(StoreUnavailable, match="nothing was sent"):
                    await store.get("/a")
            assert under_way
            server.resume()
            await until(lambda: phase_of(store) is SessionPhase.CONNECTED)
            await next_lost(changes)
            await until_found(store, "/e", 0)
        assert store.session.epoch > epoch
        await store.put("/a", b"2")


async def test_a_session_lost_by_our_clock_is_closed(server: ZooKeeperServer, chroot: str) -> None:
    """The server would keep its nodes for a minute: whoever stopped owning is not to block."""
    async with opened(server, chroot) as store, opened(server, chroot) as other:
        epoch = store.session.epoch
        await store.put("/e/mine", b"", epoch=epoch)
        link = store._calls._link
        link.contact_at -= LIVES_S + 1
        assert (store.session.epoch, phase_of(store)) == (epoch + 1, SessionPhase.LOST)
        await until(lambda: phase_of(store) is SessionPhase.CONNECTED)
        assert not await other.exists("/e/mine")
        _, stat = await store.put("/e/mine", b"", MUST_NOT_EXIST, epoch=epoch + 1)
        assert stat.created_by_self


async def test_contact_is_when_the_request_was_sent(server: ZooKeeperServer, chroot: str) -> None:
    """The server counts from when it got the request, however late its answer comes."""
    async with relayed(server) as (relay, port), opened(server, chroot, port=port) as store:
        timeout_s = store._calls._link.timeout_s
        assert timeout_s == LIVES_S
        before = store.session.lost_at
        await store.exists("/")
        assert store.session.lost_at > before
        relay.hold()
        async with trio.open_nursery() as nursery:
            asked_at = trio.current_time()
            nursery.start_soon(store.exists, "/")
            await until(lambda: relay.is_holding)
            heard_at = trio.current_time()
            relay.release()
        assert asked_at < store.session.lost_at - timeout_s < heard_at


async def test_pings_are_contact(server: ZooKeeperServer, chroot: str) -> None:
    """A store that is asked for nothing keeps its session."""
    async with opened(server, chroot, 9.0) as store:
        session = store.session
        await until(lambda: store.session.lost_at != session.lost_at)
        assert store.session.epoch == session.epoch
        assert session.lost_at < store.session.lost_at < trio.current_time() + 9


async def test_a_killed_server(server: ZooKeeperServer, chroot: str) -> None:
    """What was answered is there, and the session goes on where it was."""
    async with opened(server, chroot) as store:
        epoch = store.session.epoch
        await store.put("/e/mine", b"", epoch=epoch)
        first, _ = await store.put("/s/n-", b"", sequential=True)
        async with store.watch("/a") as changes:
            server.kill()
            await until(lambda: phase_of(store) is SessionPhase.SUSPENDED)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.put, "/a", b"1")
                await trio.to_thread.run_sync(server.start)
            await next_lost(changes)
        assert store.session.epoch == epoch
        mine = await store.get("/e/mine")
        assert mine is not None
        assert mine.stat.created_by_self
        second, _ = await store.put("/s/n-", b"", sequential=True)
        assert second > first


async def test_values_that_are_too_large(server: ZooKeeperServer, chroot: str) -> None:
    """The server would end the connection. The largest that we send it takes."""
    async with opened(server, chroot) as store:
        connection = store._calls._connection
        with pytest.raises(ValueTooLarge):
            await store.put("/a", bytes(1024 * 1024))
        path = "/largest"
        await store.put(path, bytes(0xFFFFF - len(chroot) - len(path) - 64))
        with pytest.raises(ValueTooLarge):
            await store.put(path, bytes(0xFFFFF - len(chroot) - len(path) - 63))
        assert store._calls._connection == connection


async def test_a_close_does_not_wait_for_ever(
    server: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, chroot) as store:
        await store.put("/a", b"")
        monkeypatch.setattr(zookeeper_session, "CLOSE_S", 0.1)
        server.pause()
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                with pytest.raises(SessionExpired):
                    await store.get("/a")

            nursery.start_soon(get)
            await trio.testing.wait_all_tasks_blocked()
            await store.aclose()
        server.resume()
        thread = store._calls._link._client._connection._connection_routine
        await until(lambda: thread is None or not thread.is_alive())


async def test_no_server_in_time(server: ZooKeeperServer, chroot: str) -> None:
    async with relayed(server) as (relay, port):
        relay.cut()
        store = ZooKeeperMetadataStore(f"zk:127.0.0.1:{port}{chroot}", LIVES_S, 1 << 20)
        with pytest.raises(StoreUnavailable, match="no session"):
            await store._calls.open(0.2)
        thread = store._calls._link._client._connection._connection_routine
        assert thread is None, "it was waited for"
        with pytest.raises(SessionExpired):
            await store.get("/a")


@pytest.mark.parametrize("path", ["/a/..", "/a/./b", "/\x01"])
async def test_paths_that_only_the_server_refuses(
    server: ZooKeeperServer, chroot: str, path: str
) -> None:
    async with opened(server, chroot) as store:
        await store.put("/a", b"")
        with pytest.raises(ValueError, match="no such path"):
            await store.put(path, b"")
