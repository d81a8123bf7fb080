"""Which deletions are finished, by whom and when, and which are undone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker._tests.wire import WireBroker, message
from geminga_broker.admin.namespaces import finishing
from geminga_broker.admin.namespaces._tests.mortal import (
    NAMESPACE,
    PARTED,
    SINGLE,
    Mortal,
    MortalWorld,
)
from geminga_broker.admin.namespaces.finishing import CHECK_S, DELETION_S, RETRY_S
from geminga_broker.cluster.deletions import DELETIONS, Note
from geminga_broker.cluster.records import Records
from geminga_broker.errors import BrokerError
from geminga_broker.log.catalog import DELETIONS as LOG_DELETIONS
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName, url_encode
from geminga_runtime.clock import wall_clock_ms

OF_NAMESPACE = f"/admin/v2/namespaces/{NAMESPACE}"
OF_PARTED = f"/admin/v2/persistent/{NAMESPACE}/parted/partitions"


async def begin(at: Mortal, name: str, *, force: bool, broker: int = 0) -> None:
    """Note and mark a deletion, as a broker that is killed then."""
    note = Note(name, force, f"b{broker}:8080", "an-earlier-life")
    path = f"{DELETIONS}/{url_encode(name)}"
    await at.store.put(path, msgspec.json.encode(note))
    namespaces = at.service.namespaces
    if "://" in name:
        records, record = namespaces.partitioned, f"{NAMESPACE}/persistent/parted"
    else:
        records, record = namespaces.tenants, name
    await records.update(record, lambda old: old | {"deleted": True})


async def notes(at: Mortal) -> list[str]:
    """Names of the notes."""
    return [each.note.name for each in await at.service.namespaces.deletions.noted()]


@asynccontextmanager
async def one_broker() -> AsyncIterator[Mortal]:
    """With the namespace and its topics."""
    async with MortalWorld().broker() as broker:
        await broker.fill()
        yield broker


async def test_a_namespace_in_which_a_topic_appeared_is_kept(autojump_clock: MockClock) -> None:
    async with one_broker() as broker:
        await begin(broker, NAMESPACE, force=False)
        assert not await broker.service.namespaces.exists(NAMESPACE)
        assert await broker.finisher.finish()
        assert await broker.service.namespaces.exists(NAMESPACE)
        assert await notes(broker) == []
        assert all(await broker.parted_whole())
        assert await broker.service.topics.exists(SINGLE)
        assert (await broker.ask("DELETE", OF_NAMESPACE)).status == 409
        assert await notes(broker) == []


@pytest.mark.parametrize("force", [False, True])
async def test_a_partitioned_topic_that_is_in_use_is_kept_or_forced(
    force: bool, autojump_clock: MockClock
) -> None:
    async with one_broker() as broker, trio.open_nursery() as nursery:
        client = WireBroker(broker.service, nursery).client()
        await client.connect()
        await client.open_producer(str(PARTED.partition(0)))
        await client.open_producer(str(PARTED.partition(1)), 2)
        await client.send(message(0))
        await wait_all_tasks_blocked()
        await begin(broker, str(PARTED), force=force)
        assert await broker.finisher.finish()
        assert await notes(broker) == []
        if force:
            assert not any(await broker.parted_whole())
        else:
            assert all(await broker.parted_whole())
            topic = broker.service.topics.loaded[str(PARTED.partition(0))]
            assert isinstance(topic, PersistentTopic)
            assert topic.log.statistics().entries == 1
        nursery.cancel_scope.cancel()


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of now are old."""
    later_ms = wall_clock_ms() + 2 * DELETION_S * 1000
    monkeypatch.setattr(finishing, "wall_clock_ms", lambda: later_ms)


async def test_a_living_brokers_deletion_is_left_to_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MortalWorld()
    later(monkeypatch)
    async with world.broker() as first, world.broker(1) as second:
        await first.fill()
        assert first.service.election.is_leader
        await begin(first, NAMESPACE, force=True, broker=1)
        assert await first.finisher.finish()
        assert await notes(first) == [NAMESPACE]
        # It is of an earlier life of that one.
        assert await second.finisher.finish()
        assert await world.leftovers() == []


async def test_a_dead_brokers_young_deletion_waits_if_others_live(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is away for a moment may have lost its session only."""
    world = MortalWorld()
    async with world.broker() as first, world.broker(1) as second:
        await first.fill()
        await begin(first, NAMESPACE, force=True, broker=2)
        for each in (first, second):
            assert await each.finisher.finish()
        assert await notes(first) == [NAMESPACE]
        later(monkeypatch)
        assert await second.finisher.finish()  # doesn't lead
        assert await notes(first) == [NAMESPACE]
        assert await first.finisher.finish()
        assert await world.leftovers() == []


async def test_a_running_deletion_is_not_finished_beside_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    async with one_broker() as broker:
        release = broker.service.unloader.unload

        async def meanwhile(bundle: BundleId, destination: str = "") -> bool:
            if not seen:
                seen.append(False)
                deletions = broker.service.namespaces.deletions
                before = await deletions.noted()
                await broker.finisher.finish()
                seen[0] = len(before) == 1 and await deletions.noted() == before
            return await release(bundle, destination)

        monkeypatch.setattr(broker.service.unloader, "unload", meanwhile)
        target = f"{OF_NAMESPACE}?force=true"
        assert (await broker.ask("DELETE", target)).status == 204
        assert seen == [True]


@pytest.mark.parametrize("name", [NAMESPACE, str(PARTED)])
async def test_whoever_stood_still_deletes_nothing_of_what_was_made_anew(
    name: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker stands still within its deletion; another one finishes it, and all is made anew."""
    target = f"{OF_PARTED if '://' in name else OF_NAMESPACE}?force=true"
    world, stands, goes_on = MortalWorld(), trio.Event(), trio.Event()
    statuses: list[int] = []
    async with world.broker() as first, world.broker(1) as second, trio.open_nursery() as nursery:
        await first.fill()
        check = first.service.namespaces.deletions.check

        async def stop(records: Records, record_name: str) -> None:
            if not stands.is_set():
                stands.set()
                await goes_on.wait()
            await check(records, record_name)

        monkeypatch.setattr(first.service.namespaces.deletions, "check", stop)

        async def delete() -> None:
            statuses.append((await first.ask("DELETE", target)).status)

        nursery.start_soon(delete)
        await stands.wait()
        assert (await second.ask("DELETE", target)).status == 204
        if name == NAMESPACE:
            assert (await second.ask("PUT", OF_NAMESPACE)).status == 204
        await second.fill_parted()
        goes_on.set()
        await trio.sleep(1)
        assert statuses == [409]
        assert all(await second.parted_whole())
        assert await notes(second) == []


async def test_what_fails_is_tried_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_broker() as broker, trio.open_nursery() as nursery:
        await begin(broker, NAMESPACE, force=True)

        async def fail(name: TopicName, *, force: bool = False) -> None:
            raise BrokerError(ServerError.PersistenceError, "storage is gone")

        with monkeypatch.context() as patch:
            patch.setattr(broker.service.topics, "delete", fail)
            nursery.start_soon(broker.finisher.run)
            await trio.sleep(1)
            assert "can't be finished yet: storage is gone" in caplog.text
            assert not await broker.service.namespaces.exists(NAMESPACE)
            assert await notes(broker) == [NAMESPACE]
        await trio.sleep(RETRY_S)
        assert await broker.world.leftovers() == []
        await broker.fill()
        await begin(broker, str(PARTED), force=True)
        await trio.sleep(CHECK_S)
        assert not any(await broker.parted_whole())
        nursery.cancel_scope.cancel()


async def test_a_forced_deletion_is_not_undone_for_a_topic_that_stays(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def do_nothing(name: TopicName, *, force: bool = False) -> None:
        pass

    async with one_broker() as broker:
        await begin(broker, NAMESPACE, force=True)
        with monkeypatch.context() as patch:
            patch.setattr(broker.service.topics, "delete", do_nothing)
            assert not await broker.finisher.finish()
        assert not await broker.service.namespaces.exists(NAMESPACE)
        assert await broker.finisher.finish()
        assert await broker.world.leftovers() == []


@pytest.mark.parametrize("is_first", [False, True])
async def test_local_policies_of_a_namespace_that_is_gone_go_too(
    is_first: bool, autojump_clock: MockClock
) -> None:
    """Also where a new one is made before the deletion is finished."""
    async with MortalWorld().broker() as broker:
        await broker.fill(topics=False)
        await begin(broker, NAMESPACE, force=False)
        await broker.service.namespaces.tenants.delete(NAMESPACE)
        if is_first:
            assert await broker.finisher.finish()
            assert await broker.service.namespaces.local_policies.get(NAMESPACE) is None
        assert (await broker.ask("PUT", OF_NAMESPACE)).status == 204
        assert await broker.finisher.finish()
        local = await broker.service.namespaces.local_policies.get(NAMESPACE)
        assert local is not None
        assert list(local) == ["bundles"]
        assert await broker.service.namespaces.exists(NAMESPACE)


async def test_a_deletion_without_an_answer_of_the_store_is_finished(
    autojump_clock: MockClock,
) -> None:
    """Where the mark could not be removed after a failure, the deletion goes on later."""
    async with one_broker() as broker:
        broker.store.refused_after = 3
        assert (await broker.ask("DELETE", f"{OF_NAMESPACE}?force=true")).status >= 500
        broker.store.refused_after = None
        assert await notes(broker) != []
        assert await broker.finisher.finish()
        assert await broker.world.leftovers() == []


def note_of(name: str) -> bytes:
    """A note of this broker's earlier life."""
    return msgspec.json.encode(Note(name, True, "b0:8080", "an-earlier-life"))


@pytest.mark.parametrize(
    ("child", "text"),
    [
        ("odd", b"{"),
        ("odd", note_of("public/gone").replace(b"gone", b"\xff")),
        ("odd", note_of("public/other")),
        *[
            (url_encode(name), note_of(name))
            for name in ("", "/", "public//x", "a/b/c", "a/..", "://", "x://a/b/c", "persistent://")
        ],
    ],
)
async def test_a_text_that_is_no_note_stays(
    child: str, text: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing else waits for it."""
    child = child or "empty"
    async with one_broker() as broker:
        await broker.store.put(f"{DELETIONS}/{child}", text)
        await begin(broker, NAMESPACE, force=True)
        assert await broker.finisher.finish()
        assert await broker.world.leftovers() == [f"{DELETIONS}/{child}"]
        assert "is no note of a deletion" in caplog.text


NESTED = b'{"deleted":' + b"[" * 100_000


@pytest.mark.parametrize("record", [b"null", b"\xff", b'{"deleted":true,"bundles":7}', NESTED])
async def test_a_deletion_of_a_damaged_record_holds_no_other_up(
    record: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_broker() as broker:
        await broker.store.put("/admin/policies/public/damaged", record)
        await broker.store.put(f"{DELETIONS}/public%2Fdamaged", note_of("public/damaged"))
        await begin(broker, NAMESPACE, force=True)
        assert not await broker.finisher.finish()
        assert await broker.world.leftovers() == [f"{DELETIONS}/public%2Fdamaged"]
        assert "public/damaged: its deletion can't be finished yet" in caplog.text


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("is_old", [False, True])
async def test_a_start_leaves_young_deletions_of_logs_to_brokers_that_live(
    is_old: bool, others: int, autojump_clock: MockClock
) -> None:
    """To take one over would fence the other broker in the middle of it."""
    world = MortalWorld()
    async with world.brokers(others):
        world.store.behind_ms = int(DELETION_S * 2000) if is_old else 0
        path = f"{LOG_DELETIONS}/{url_encode(f'/{SINGLE.persistence_naming_encoding}')}"
        await world.store.put(path, b"")
        async with world.broker(others) as starts:
            await wait_all_tasks_blocked()
            assert await starts.store.exists(path) == (others > 0 and not is_old)
