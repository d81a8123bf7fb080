"""The store in another process: the contract over both embedded stores, and its own losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from geminga_runtime.message_frames import encode
from geminga_runtime.metadata import remote_frames as frames
from geminga_runtime.metadata._tests.contract import MetadataStoreContract
from geminga_runtime.metadata._tests.contract_session import SeveralSessions, drain, until
from geminga_runtime.metadata._tests.remote_world import Server
from geminga_runtime.metadata.api import (
    MetadataError,
    MetadataStore,
    Node,
    NoNode,
    SessionPhase,
    StoreUnavailable,
    ValueTooLarge,
)
from geminga_runtime.metadata.embedded import EmbeddedStore
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.remote import (
    RemoteMetadataStore,
    RemoteStoreOptions,
    open_remote_store,
)
from geminga_runtime.metadata.remote_server import END_S, RETRY_S, ServerLimits, serve_session
from geminga_runtime.metadata.sqlite import SqliteMetadataStore
from geminga_runtime.stream import FramedStream


class _Remote(RemoteMetadataStore):
    """Closes the store that is served too, if it has opened it."""

    def __init__(self, server: Server, *, owns: bool) -> None:
        super().__init__(server.dial)
        self.server = server
        self._owns = owns

    async def aclose(self) -> None:
        await super().aclose()
        if self._owns:
            await self.server.base.aclose()


async def connected(server: Server, *, owns: bool) -> MetadataStore:
    store = _Remote(server, owns=owns)
    trio.lowlevel.spawn_system_task(store.run)
    await store.wait_connected()
    return store


class RemoteContract(SeveralSessions, MetadataStoreContract):
    async def open_base(self, folder: Path) -> EmbeddedStore:
        raise AssertionError("a subclass says how")

    async def open_store(self, folder: Path) -> MetadataStore:
        return await connected(Server(await self.open_base(folder)), owns=True)

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        assert isinstance(store, _Remote)
        return await connected(store.server, owns=False)

    async def end_session(self, store: MetadataStore) -> None:
        assert isinstance(store, _Remote)
        sessions = store.server.sessions
        store.server.streams[0].abort()
        await until(lambda: store.server.sessions < sessions)

    async def settle(self, store: MetadataStore) -> None:
        """What is told comes before later answers."""
        assert isinstance(store, _Remote)
        if store.session.phase is SessionPhase.CONNECTED:
            await store.exists("/")


class TestRemoteMemory(RemoteContract):
    async def open_base(self, folder: Path) -> EmbeddedStore:
        return MemoryMetadataStore()


class TestRemoteSqlite(RemoteContract):
    async def open_base(self, folder: Path) -> EmbeddedStore:
        return await SqliteMetadataStore.open(folder / "metadata.db")


class _Held(MemoryMetadataStore):
    """Keeps the answers about one path back."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = trio.Event()

    def another_session(self) -> MemoryMetadataStore:
        other = _Held()
        other.gate = self.gate
        other._join(self._rows)
        return other

    async def get(self, path: str) -> Node | None:
        if path == "/held":
            await self.gate.wait()
        return await super().get(path)


async def test_a_request_under_way_holds_up_no_other() -> None:
    base = _Held()
    done = False

    async def ask() -> None:
        nonlocal done
        await store.get("/held")
        done = True

    async with open_remote_store(Server(base).dial) as store, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        await store.put("/other", b"")
        assert await store.exists("/other")
        assert not done
        base.gate.set()
    assert done


async def test_a_close_waits_for_earlier_requests() -> None:
    base = _Held()
    found: list[Node | None] = []

    async def ask() -> None:
        found.append(await store.get("/held"))

    async with open_remote_store(Server(base).dial) as store, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        nursery.start_soon(store.aclose)
        await wait_all_tasks_blocked()
        assert found == []
        base.gate.set()
    assert found == [None]


async def test_changes_are_told_before_later_answers() -> None:
    """Whoever asks after a change was answered has been told of it: what a cache relies on."""
    server = Server(MemoryMetadataStore())
    async with (
        open_remote_store(server.dial) as one,
        open_remote_store(server.dial) as two,
        two.watch("/w") as changes,
    ):
        for number in range(50):
            await one.put("/w/a", b"%d" % number)
            node = await two.get("/w/a")
            assert node is not None
            assert node.value == b"%d" % number
            assert drain(changes)[-1] in {("modified", "/w/a"), ("children", "/w")}


async def test_a_killed_client_loses_its_nodes_at_once() -> None:
    base = MemoryMetadataStore()
    server = Server(base)
    async with trio.open_nursery() as nursery:
        store = RemoteMetadataStore(server.dial)
        nursery.start_soon(store.run)
        await store.wait_connected()
        await store.put("/e/mine", b"", epoch=store.session.epoch)
        await store.put("/kept", b"")
        async with base.watch("/e") as changes:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(10):
                assert (await changes.receive()).path == "/e/mine"
    assert await base.exists("/kept")
    assert not await base.exists("/e/mine")


async def test_a_loss_fails_what_is_under_way(autojump_clock: trio.testing.MockClock) -> None:
    server = Server(_Held())
    async with open_remote_store(server.dial) as store, trio.open_nursery() as nursery:
        epoch = store.session.epoch

        async def ask() -> None:
            with pytest.raises(StoreUnavailable, match="session has ended"):
                await store.get("/held")

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        server.refuses = True
        async with store.watch("/w") as changes:
            server.streams[0].abort()
            await wait_all_tasks_blocked()
            assert store.session.phase is SessionPhase.LOST
            assert store.session.epoch == epoch + 1
            with pytest.raises(StoreUnavailable):
                await store.get("/a")
            async with store.watch("/late") as late:
                server.refuses = False
                await trio.sleep(10)
                assert store.session.phase is SessionPhase.CONNECTED
                assert drain(late) == [("lost", "/late")]
                await server.base.put("/late/a", b"")
                await store.exists("/")
                assert ("created", "/late/a") in drain(late)
            assert drain(changes)[0] == ("lost", "/w")


class _Full(MemoryMetadataStore):
    """Its sessions can't end at first, for longer than a server that is stopped would try."""

    failures = 2 * round(END_S / RETRY_S)

    def another_session(self) -> MemoryMetadataStore:
        other = _Full()
        other._join(self._rows)
        return other

    async def aclose(self) -> None:
        if _Full.failures:
            _Full.failures -= 1
            raise StoreUnavailable("the disk is full")
        await super().aclose()


async def test_the_nodes_of_a_dead_client_are_deleted_when_that_is_possible(
    autojump_clock: trio.testing.MockClock,
) -> None:
    base = _Full()
    server = Server(base)
    async with trio.open_nursery() as nursery:
        store = RemoteMetadataStore(server.dial)
        nursery.start_soon(store.run)
        await store.wait_connected()
        await store.put("/e", b"", epoch=store.session.epoch)
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert await base.exists("/e")
    await trio.sleep(60)
    assert not await base.exists("/e")


async def test_no_server(autojump_clock: trio.testing.MockClock) -> None:
    server = Server(MemoryMetadataStore())
    server.refuses = True
    with pytest.raises(StoreUnavailable, match="no connection"):
        async with open_remote_store(server.dial):
            raise AssertionError("there is none")


async def test_a_silent_client_is_lost_by_both_clocks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One that stands still finds its session lost before the server ends it."""
    base = MemoryMetadataStore()
    server = Server(base)
    async with trio.open_nursery() as nursery:
        store = RemoteMetadataStore(server.dial)
        nursery.start_soon(store.run)
        await store.wait_connected()
        await store.put("/e", b"", epoch=store.session.epoch)
        lost_at = store.session.lost_at
        await trio.sleep(95)
        assert store.session.epoch == 1, "pings keep it"
        assert await base.exists("/e")
        lost_at = store.session.lost_at
        server.is_deaf = True
        await trio.sleep_until(lost_at - 0.01)
        assert store.session.epoch == 1
        assert await base.exists("/e")
        await trio.sleep_until(lost_at)
        assert store.session.epoch == 2
        await trio.sleep(server.limits.session_timeout_s)
        assert not await base.exists("/e")
        nursery.cancel_scope.cancel()


async def test_the_server_ends_the_session_of_a_client_that_stands_still(
    autojump_clock: trio.testing.MockClock,
) -> None:
    base = MemoryMetadataStore()
    here, there = memory_stream_pair()
    limits = ServerLimits(session_timeout_s=20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_session, base, FramedStream(there, name="client"), limits)
        for number in range(1, 4):
            await here.send_all(encode(number, frames.Put("/e", b"", None, True, False)))
            await trio.sleep(19)
        assert await base.exists("/e")
        await trio.sleep(2)
        assert not await base.exists("/e")


async def test_bounds_of_requests() -> None:
    """The server reads no more than so many; all are answered."""
    server = Server(MemoryMetadataStore(), ServerLimits(requests_max=3, requests_bytes_max=100))
    options = RemoteStoreOptions(requests_max=50, value_bytes_max=1000)
    async with open_remote_store(server.dial, options) as store:
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(store.put, f"/n/{number}", bytes(60))
        assert len(await store.children("/n")) == 200
        with pytest.raises(ValueTooLarge):
            await store.put("/large", bytes(1001))
        await store.put("/large", bytes(1000))


async def test_bound_of_watches() -> None:
    server = Server(MemoryMetadataStore(), ServerLimits(watches_max=2))
    async with open_remote_store(server.dial) as store:
        async with store.watch("/a"), store.watch("/a"), store.watch("/b"):
            with pytest.raises(MetadataError, match="2 prefixes are watched already"):
                async with store.watch("/c"):
                    pass
        async with store.watch("/c"):
            await store.exists("/")


async def test_a_watch_that_ended_costs_nothing() -> None:
    server = Server(MemoryMetadataStore())
    async with open_remote_store(server.dial) as store:
        async with store.watch("/w") as first:
            async with store.watch("/w"):
                pass
            await server.base.put("/w/a", b"")
            await store.exists("/")
            assert len(drain(first)) == 3
        await store.exists("/")
        sent = server.streams[0].sent_bytes
        await server.base.put("/w/b", b"")
        await wait_all_tasks_blocked()
        assert server.streams[0].sent_bytes == sent


async def test_a_client_that_takes_nothing_hears_that_it_missed_changes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    base = MemoryMetadataStore()
    here, there = lockstep_stream_pair()
    framed = FramedStream(there, name="client", write_high_bytes=1000)
    received = frames.answers()
    said: list[frames.Answer | frames.Told] = []

    async def take() -> None:
        with trio.move_on_after(0.1):
            while True:
                data = bytes(await here.receive_some())
                said.extend(content for _, content, _ in received.feed(data))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_session, base, framed)
        await here.send_all(encode(1, frames.Watch("/w")))
        for number in range(100):
            await base.put("/w/a", b"%d" % number)
        assert framed.pending_bytes < 1100
        await here.send_all(encode(2, frames.Ping()))
        await wait_all_tasks_blocked()
        await take()
        changes = [each for each in said if isinstance(each, frames.Changed)]
        assert 10 < len(changes) < 90
        assert said.count(frames.Missed()) == 1
        # Before the answer to what was asked after them.
        assert said.index(frames.Missed()) < len(said) - 1
        assert said[-1] == frames.Done()
        said.clear()
        await base.put("/w/b", b"")
        await take()
        assert [type(each) for each in said] == [frames.Changed]
        nursery.cancel_scope.cancel()


async def test_garbage_ends_the_connection() -> None:
    base = MemoryMetadataStore()
    for garbage in (b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\2\x92\1"):
        here, there = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_session, base, FramedStream(there, name="client"))
            await here.send_all(garbage)
    assert await base.get("/") is not None


async def test_errors_cross_as_they_are() -> None:
    async with open_remote_store(Server(MemoryMetadataStore()).dial) as store:
        with pytest.raises(NoNode, match="/absent"):
            await store.delete("/absent")
    assert frames.Refused("Unheard", "of").error().args == ("of",)

    class Special(NoNode):
        pass

    assert frames.Refused.of(Special("x")) == frames.Refused("NoNode", "x")
