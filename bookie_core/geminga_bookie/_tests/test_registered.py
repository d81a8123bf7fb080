"""The bookies' registrations in the metadata store, followed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from geminga_bookie.client._tests.cluster import SlowStore
from geminga_bookie.errors import BookieUnavailable, NoSuchLedger
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import BookiePort
from geminga_bookie.registered import RETRY_S, RegisteredBookies, endpoint, open_registered_bookies
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie
from geminga_protocol.bookkeeper import paths
from geminga_protocol.pb.bookkeeper_metadata_pb2 import BookieServiceInfoFormat
from geminga_runtime.metadata.api import Node, StoreUnavailable

AVAILABLE, READONLY = paths.available(), paths.readonly()


def info(host: str, port: int, protocol: str = "bookie-rpc") -> bytes:
    """A registration's value, as a bookie writes it."""
    value = BookieServiceInfoFormat()
    value.endpoints.add(id="http", host="web", port=8000, protocol="http")
    value.endpoints.add(id="bookie", host=host, port=port, protocol=protocol)
    return value.SerializeToString()


class Store(SlowStore):
    """May be away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False

    async def get(self, path: str) -> Node | None:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().get(path)

    async def children(self, path: str) -> Sequence[str]:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().children(path)


async def expect(bookies: RegisteredBookies, *ids: str) -> None:
    with trio.fail_after(60):
        while tuple(bookies.writable()) != ids:
            await bookies.wait_change()


async def test_registrations_are_followed() -> None:
    store = Store()
    await store.put(f"{AVAILABLE}/b1:3181", b"")
    await store.put(f"{READONLY}/b2:3181", b"")
    async with open_registered_bookies(store) as bookies:
        assert list(bookies.writable()) == ["b1:3181"]
        await store.put(f"{AVAILABLE}/b3:3181", b"")
        await expect(bookies, "b1:3181", "b3:3181")
        await store.delete(f"{AVAILABLE}/b1:3181")
        await store.put(f"{READONLY}/b1:3181", b"")
        await expect(bookies, "b3:3181")
        assert bookies.port("b1:3181").bookie_id == "b1:3181"
        assert bookies.port("b1:3181") is bookies.port("b1:3181")


async def test_a_store_that_is_away_for_a_while(autojump_clock: object) -> None:
    """What was known stays, and what changed meanwhile is found."""
    store = Store()
    await store.put(f"{AVAILABLE}/b1:3181", b"")
    async with open_registered_bookies(store) as bookies:
        store.is_away = True
        await store.put(f"{AVAILABLE}/b2:3181", b"")
        await trio.sleep(3 * RETRY_S)
        assert list(bookies.writable()) == ["b1:3181"]
        store.is_away = False
        await expect(bookies, "b1:3181", "b2:3181")


async def test_a_store_that_is_away_at_first() -> None:
    store = Store()
    store.is_away = True
    await store.put(f"{AVAILABLE}/b1:3181", b"")
    with pytest.raises(StoreUnavailable):
        async with open_registered_bookies(store):
            raise AssertionError("nothing is known")


async def test_a_bookie_is_found_where_it_registered_last(nursery: trio.Nursery) -> None:
    """Its id is a name, and it moves to another port."""
    store = Store()
    at: list[int] = []
    stopping: list[trio.CancelScope] = []

    async def serve(
        bookie: BookiePort, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as scope:
            stopping.append(scope)
            async with trio.open_nursery() as inner:
                options = BookieServerOptions("127.0.0.1", 0)
                bound = await inner.start(serve_bookie, bookie, options)
                at.append(bound[0].port)
                task_status.started()

    await nursery.start(serve, MemoryBookie("bookie-a"))
    await store.put(f"{AVAILABLE}/bookie-a", info("127.0.0.1", at[0]))
    async with open_registered_bookies(store) as bookies:
        port = bookies.port("bookie-a")
        with pytest.raises(NoSuchLedger):
            await port.last_entry(1)
        stopping[0].cancel()
        await nursery.start(serve, MemoryBookie("bookie-a"))
        await store.delete(f"{AVAILABLE}/bookie-a")
        await store.put(f"{AVAILABLE}/bookie-a", info("127.0.0.1", at[1]))
        with trio.fail_after(60):
            while True:
                try:
                    await port.last_entry(1)
                except NoSuchLedger:
                    break
                except BookieUnavailable:
                    await trio.sleep(0.05)
    nursery.cancel_scope.cancel()


async def test_a_bookie_that_nobody_knows() -> None:
    async with open_registered_bookies(Store()) as bookies:
        for bookie_id in ("bookie-a", "host:", ":3181", "host:0", "host:70000", "host:٣"):
            with pytest.raises(BookieUnavailable, match="has not registered"):
                bookies.port(bookie_id)
        assert bookies.port("::1:3181").bookie_id == "::1:3181"


def test_endpoints() -> None:
    assert endpoint(info("h", 3181)) == ("h", 3181)
    for nothing in (b"", b"\xff", info("h", 3181, "http"), info("h", 0), info("h", 1 << 16)):
        assert endpoint(nothing) is None
