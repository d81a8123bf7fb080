"""The contract of metadata stores on sessions and ephemeral nodes (spec CL-01)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing

from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    Notification,
    SessionExpired,
    SessionPhase,
)

WAIT_S = 60.0
"""How long a busy machine may need for what comes at once on an idle one."""


def drain(channel: trio.MemoryReceiveChannel[Notification]) -> list[tuple[str, str]]:
    heard = []
    while True:
        try:
            notification = channel.receive_nowait()
        except trio.WouldBlock:
            return heard
        heard.append((notification.kind.value, notification.path))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state that has no event."""
    with trio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.005)


class SessionContract:
    """Rules of one session. The fixture `store` is that of `MetadataStoreContract`."""

    async def settle(self, store: MetadataStore) -> None:
        """Wait until the watchers have the notifications of all finished calls."""

    async def test_ephemeral(self, store: MetadataStore) -> None:
        _, stat = await store.put("/e/mine", b"me", epoch=store.session.epoch)
        assert stat.ephemeral
        assert stat.created_by_self
        node = await store.get("/e/mine")
        assert node is not None
        assert node.stat == stat
        with pytest.raises(MetadataError):
            await store.put("/e/mine/child", b"")

    async def test_session_at_first(self, store: MetadataStore) -> None:
        session = store.session
        assert session.phase is SessionPhase.CONNECTED
        assert session.lost_at > trio.current_time()
        assert await store.wait_change(session.epoch - 1) == store.session

    @pytest.mark.parametrize("off", [-1, 1])
    async def test_a_put_of_another_epoch_is_refused(self, store: MetadataStore, off: int) -> None:
        epoch = store.session.epoch
        with pytest.raises(SessionExpired):
            await store.put("/e/old", b"", epoch=epoch + off)
        with pytest.raises(SessionExpired):
            await store.put("/e/old-", b"", MUST_NOT_EXIST, epoch=epoch + off, sequential=True)
        assert list(await store.children("/e")) == []
        assert store.session.epoch == epoch

    async def test_closed_store(self, store: MetadataStore) -> None:
        epoch = store.session.epoch
        async with store.watch("/") as changes, trio.open_nursery() as nursery:
            nursery.start_soon(self.expect_closed, store, epoch)
            await trio.testing.wait_all_tasks_blocked()
            await store.aclose()
            await store.aclose()
            with pytest.raises(trio.EndOfChannel):
                await changes.receive()
        assert store.session.phase is SessionPhase.CLOSED
        assert store.session.lost_at <= trio.current_time()
        with pytest.raises(SessionExpired):
            await store.wait_change(store.session.epoch)
        with pytest.raises(SessionExpired):
            await store.get("/a")
        for at in (None, epoch, store.session.epoch):
            with pytest.raises(SessionExpired):
                await store.put("/a", b"", epoch=at)
        with pytest.raises(SessionExpired):
            await store.children("/a")

    async def expect_closed(self, store: MetadataStore, epoch: int) -> None:
        with trio.fail_after(WAIT_S):
            session = await store.wait_change(epoch)
        assert session.epoch != epoch
        assert session.phase is SessionPhase.CLOSED


class SeveralSessions:
    """Rules between two sessions on the same nodes."""

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        """A second session on the same nodes."""
        raise AssertionError("a subclass says how")

    async def end_session(self, store: MetadataStore) -> None:
        """Let the store lose its session, as when its server expires it."""
        raise AssertionError("a subclass says how")

    async def settle(self, store: MetadataStore) -> None:
        """As in `SessionContract`."""
        raise AssertionError("another base says how")

    @pytest.fixture
    async def other(self, store: MetadataStore) -> AsyncIterator[MetadataStore]:
        other = await self.open_beside(store)
        yield other
        await other.aclose()

    async def test_ephemerals_end_with_their_session(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        path, _ = await other.put("/e/n-", b"", epoch=other.session.epoch, sequential=True)
        node = await store.get(path)
        assert node is not None
        assert node.stat.ephemeral
        assert not node.stat.created_by_self
        async with store.watch("/e") as changes:
            await other.aclose()
            await self.settle(store)
            assert drain(changes) == [("deleted", path), ("children", "/e")]
        assert await store.exists("/e"), "a parent that was made on demand stays"

    async def test_a_lost_session(self, store: MetadataStore, other: MetadataStore) -> None:
        epoch = store.session.epoch
        await store.put("/e/a", b"", epoch=epoch)
        await other.put("/e/b", b"", epoch=other.session.epoch)
        seen: list[int] = []

        async def follow() -> None:
            seen.append((await store.wait_change(epoch)).epoch)

        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await trio.testing.wait_all_tasks_blocked()
                assert seen == []
                await self.end_session(store)
            assert seen == [epoch + 1]
            await until(lambda: store.session.phase is SessionPhase.CONNECTED)
        assert list(await other.children("/e")) == ["b"]
        with pytest.raises(SessionExpired):
            await store.put("/e/a", b"", epoch=epoch)
        assert not await other.exists("/e/a")
        _, stat = await store.put("/e/a", b"", epoch=epoch + 1)
        assert stat.created_by_self
        assert store.session.epoch == epoch + 1

    async def test_two_clients_race(self, store: MetadataStore, other: MetadataStore) -> None:
        """Compare-and-set loses no update and makes none twice."""
        await store.put("/counter", b"0")

        async def count(through: MetadataStore) -> None:
            for _ in range(40):
                while True:
                    node = await through.get("/counter")
                    assert node is not None
                    changed = b"%d" % (int(node.value) + 1)
                    try:
                        await through.put("/counter", changed, node.stat.version)
                        break
                    except BadVersion:
                        continue

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count, store)
            nursery.start_soon(count, other)
        node = await other.get("/counter")
        assert node is not None
        assert (node.value, node.stat.version) == (b"80", 80)
