"""The bookies' registrations in the metadata store, followed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from geminga_bookie.client._tests.cluster import SlowStore
from geminga_bookie.client.health import HealthOptions, ReadRank
from geminga_bookie.client.placement_rules import PlacementOptions
from geminga_bookie.errors import BookieUnavailable, NoSuchLedger
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import BookieInfo, BookiePort
from geminga_bookie.racks import BOOKIES
from geminga_bookie.registered import (
    PULSE_S,
    RETRY_S,
    ChoiceOptions,
    RegisteredBookies,
    endpoint,
    open_registered_bookies,
)
from geminga_bookie.wire.remote import RemoteBookie
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


def racks_json(**racks: str) -> bytes:
    """As pulsar-admin writes it."""
    members = {f"{name}:3181": {"rack": rack, "hostname": name} for name, rack in racks.items()}
    return json.dumps({"default": members}).encode()


async def expect_racks(bookies: RegisteredBookies, **racks: str) -> None:
    with trio.fail_after(60):
        while True:
            rules = bookies.rules()
            if all(rules.rack(f"{name}:3181") == rack for name, rack in racks.items()):
                return
            await trio.sleep(0.01)


async def test_racks_are_followed(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    for name in ("b1", "b2", "b3"):
        await store.put(f"{AVAILABLE}/{name}:3181", b"")
    await store.put(BOOKIES, racks_json(b1="/r1/", b2=" r2 ", b3="/"))
    async with open_registered_bookies(store) as bookies:
        rules = bookies.rules()
        assert rules.groups == {"default": {"b1:3181", "b2:3181", "b3:3181"}}
        await expect_racks(bookies, b1="/r1", b2="/r2", b3="/default-rack")
        await store.put(BOOKIES, racks_json(b1="/r3"))
        await expect_racks(bookies, b1="/r3", b2="/default-rack")
        await store.put(BOOKIES, b'{"default": []}')
        await store.put(f"{AVAILABLE}/b4:3181", b"")
        await expect(bookies, "b1:3181", "b2:3181", "b3:3181", "b4:3181")
        await expect_racks(bookies, b1="/r3")
        assert "stay as they were" in caplog.text
        caplog.clear()
        await store.put(BOOKIES, b"[" * 200_000)
        await trio.testing.wait_all_tasks_blocked()
        assert "nested too deeply" in caplog.text
        await expect_racks(bookies, b1="/r3")
        await store.delete(BOOKIES)
        await expect_racks(bookies, b1="/default-rack")


async def test_the_rack_of_a_host() -> None:
    """The node names an id or an address; Pulsar asks for hosts."""
    store = Store()
    await store.put(f"{AVAILABLE}/named", info("h1", 3181))
    await store.put(f"{AVAILABLE}/h2:4000", b"")
    value = {"default": {"h1:3181": {"rack": "/r1"}, "h2:3181": {"rack": "/r2"}, "h3": None}}
    await store.put(BOOKIES, json.dumps(value).encode())
    async with open_registered_bookies(store) as bookies:
        assert bookies.rules().rack("named") == "/r1"
        assert bookies.rules().rack("h2:4000") == "/r2"
        await store.put(f"{AVAILABLE}/late", info("h1", 3182))
        await expect(bookies, *sorted(["named", "h2:4000", "late"]))
        assert bookies.rules().rack("late") == "/r1"


async def test_bookies_that_fail_are_avoided(autojump_clock: object) -> None:
    store = Store()
    for name in ("b1", "b2"):
        await store.put(f"{AVAILABLE}/{name}:3181", b"")
    await store.put(f"{READONLY}/b3:3181", b"")
    choice = ChoiceOptions(health=HealthOptions(quarantine_s=100))
    async with open_registered_bookies(store, choice=choice) as bookies:
        assert bookies.read_rank("b1:3181") is ReadRank.GOOD
        assert bookies.read_rank("b3:3181") is ReadRank.READ_ONLY
        assert bookies.read_rank("b4:3181") is ReadRank.AWAY
        for _ in range(6):
            bookies.failed("b1:3181", BookieUnavailable("away"))
            bookies.failed("b4:3181", BookieUnavailable("stopped"))
        assert bookies.rules().quarantined == {"b1:3181"}
        assert bookies.read_rank("b1:3181") is ReadRank.SLOW
        bookies.slow("b2:3181")
        assert bookies.read_rank("b2:3181") is ReadRank.SLOW
        await trio.sleep(111)
        assert not bookies.rules().quarantined
        assert bookies.read_rank("b2:3181") is ReadRank.GOOD
        for _ in range(6):
            bookies.failed("b1:3181", BookieUnavailable("away"))
        await store.delete(f"{AVAILABLE}/b1:3181")
        await expect(bookies, "b2:3181")
        await store.put(f"{AVAILABLE}/b1:3181", b"")
        await expect(bookies, "b1:3181", "b2:3181")
        assert not bookies.rules().quarantined, "it stopped in an orderly way"


async def test_a_process_that_was_stopped_holds_it_against_no_bookie(mock_clock: MockClock) -> None:
    """SIGSTOP for five seconds: all that was under way is past its deadline when it goes on."""
    store = Store()
    for name in ("b1", "b2"):
        await store.put(f"{AVAILABLE}/{name}:3181", b"")

    def fail() -> None:
        for name in ("b1", "b2"):
            for _ in range(6):
                bookies.failed(f"{name}:3181", BookieUnavailable("late"))

    async with open_registered_bookies(store) as bookies:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(5.0)
        fail()
        await trio.testing.wait_all_tasks_blocked()
        fail()
        assert not bookies.rules().quarantined
        assert bookies.read_rank("b1:3181") is ReadRank.GOOD
        for _ in range(3):
            mock_clock.jump(PULSE_S)
            await trio.testing.wait_all_tasks_blocked()
        fail()
        await trio.testing.wait_all_tasks_blocked()
        assert bookies.rules().quarantined == {"b1:3181", "b2:3181"}, "it is at work again"


async def test_reads_are_not_reordered_if_that_is_switched_off() -> None:
    async with open_registered_bookies(Store(), choice=ChoiceOptions(reorder_reads=False)) as found:
        assert found.read_rank("b1:3181") is ReadRank.GOOD


async def test_free_space_is_asked_for(autojump_clock: object) -> None:
    """Of bookies that come, again where there was no answer, and each day."""
    store = Store()
    for name in ("b1", "b2"):
        await store.put(f"{AVAILABLE}/{name}:3181", b"")
    asked: list[str] = []

    async def free_bytes(bookie: RemoteBookie) -> int:
        asked.append(bookie.bookie_id)
        if bookie.bookie_id == "b2:3181" and len(asked) < 3:
            raise BookieUnavailable("away")
        return len(asked)

    placement = PlacementOptions(by_weight=True)
    choice = ChoiceOptions(placement, free_bytes=free_bytes, free_bytes_interval_s=1000)
    async with open_registered_bookies(store, choice=choice) as bookies:
        await trio.sleep(1)
        assert set(bookies.rules().free_bytes) == {"b1:3181"}
        await trio.sleep(70)
        assert set(bookies.rules().free_bytes) == {"b1:3181", "b2:3181"}
        await store.put(f"{AVAILABLE}/b3:3181", b"")
        await trio.sleep(10)
        assert set(bookies.rules().free_bytes) == {"b1:3181", "b2:3181", "b3:3181"}
        count = len(asked)
        await trio.sleep(900)
        assert len(asked) == count
        await trio.sleep(200)
        assert len(asked) == count + 3


async def test_a_bookie_tells_its_free_space(nursery: trio.Nursery) -> None:
    """Over the wire."""

    class Roomy(MemoryBookie):
        async def info(self) -> BookieInfo:
            return BookieInfo(2000, 1234)

    store = Store()
    bound = await nursery.start(serve_bookie, Roomy("b1"), BookieServerOptions("127.0.0.1", 0))
    await store.put(f"{AVAILABLE}/b1", info("127.0.0.1", bound[0].port))
    choice = ChoiceOptions(PlacementOptions(by_weight=True))
    async with open_registered_bookies(store, choice=choice) as bookies:
        with trio.fail_after(60):
            while bookies.rules().free_bytes != {"b1": 1234}:  # noqa: ASYNC110 - it sets no event
                await trio.sleep(0.01)
    nursery.cancel_scope.cancel()


async def test_connections_serve_the_cleanup_of_a_cancelled_block(nursery: trio.Nursery) -> None:
    """A broker that is stopped confirms what is under way, and closes its ledgers."""
    store = Store()
    bookie = MemoryBookie("b1")
    bound = await nursery.start(serve_bookie, bookie, BookieServerOptions("127.0.0.1", 0))
    await store.put(f"{AVAILABLE}/b1", info("127.0.0.1", bound[0].port))
    with trio.CancelScope() as scope:
        async with open_registered_bookies(store) as bookies:
            with pytest.raises(NoSuchLedger):
                await bookies.port("b1").last_entry(1)
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.fail_after(60, shield=True), pytest.raises(NoSuchLedger):
                    await bookies.port("b1").last_entry(1)
    assert scope.cancelled_caught
    nursery.cancel_scope.cancel()
