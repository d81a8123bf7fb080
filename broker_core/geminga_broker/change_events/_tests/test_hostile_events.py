"""What must not harm a broker that follows policies: events, failures and takeovers of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

import geminga
from geminga.schema import AlreadyEncoded, SchemaInfo, SchemaType
from geminga_broker.change_events._tests.followed import (
    EVENTS,
    OLDER,
    T,
    brokers,
    having,
)
from geminga_broker.change_events.api import EventsUnavailable, EventWriter, UnfitPolicy
from geminga_broker.change_events.avro_schema import EVENT_TEXT, PROPERTIES
from geminga_broker.change_events.client_events import ClientEvents
from geminga_broker.change_events.codec import encode
from geminga_broker.change_events.follower import Follower
from geminga_broker.change_events.older_records import CLAIMS, OlderRecords
from geminga_broker.change_events.store import SystemTopicPolicies
from geminga_broker.cluster.records import JsonObject
from geminga_broker.inner_client import client_of_broker
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.memory import MemoryMetadataStore


async def test_numbers_that_an_event_can_not_hold_are_refused() -> None:
    async with brokers() as (service,):
        store = service.policies.store
        await store.update(T, having(maxProducerPerTopic=5))
        with pytest.raises(UnfitPolicy, match="maxProducerPerTopic: number 2147483648 is out of"):
            await store.update(T, having(maxProducerPerTopic=1 << 31))
        with pytest.raises(UnfitPolicy, match="bytes"):
            rates = {f"s{n}" * 20: {"dispatchRate": {}} for n in range(9000)}
            await store.update(T, having(subscriptionPolicies=rates))
        with pytest.raises(UnfitPolicy, match="no policies of its own"):
            await store.update(EVENTS, having(maxProducerPerTopic=5))
        assert await store.get(T) == {"maxProducerPerTopic": 5}


async def test_a_client_that_fails_ends_no_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one who needs it opens another."""
    async with brokers() as (service,):
        store = service.policies.store
        opened = ClientEvents._opened

        async def broken(self: ClientEvents) -> geminga.Client:
            @asynccontextmanager
            async def failing() -> AsyncIterator[geminga.Client]:
                raise RuntimeError("no such file")
                yield

            before, self._opening = self._opening, failing
            try:
                return await opened(self)
            finally:
                self._opening = before

        with monkeypatch.context() as patch:
            patch.setattr(ClientEvents, "_opened", broken)
            with pytest.raises(EventsUnavailable, match="no such file"):
                await store.update(T, having(maxProducerPerTopic=5))
        assert "the broker's own client has ended" in caplog.text
        await store.update(T, having(maxProducerPerTopic=6))
        assert await store.get(T) == {"maxProducerPerTopic": 6}


async def test_a_takeover_that_stood_still_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its claim has gone, another broker has taken over, and the policies were changed since."""
    store = MemoryMetadataStore()
    await store.put(f"{OLDER}/t", b'{"maxMessageSize": 1}')
    write, held, go = Follower._write, trio.Event(), trio.Event()

    async def late(
        self: Follower,
        writer: EventWriter,
        topic: TopicName,
        record: JsonObject | None,
        **how: bool,
    ) -> MessageId:
        if not held.is_set():
            held.set()
            await go.wait()
        return await write(self, writer, topic, record, **how)

    monkeypatch.setattr(Follower, "_write", late)
    async with brokers(2, store=store) as (here, there), trio.open_nursery() as nursery:
        refused = trio.Event()

        async def follow() -> None:
            with pytest.raises(EventsUnavailable, match="epoch has already moved"):
                await there.policies.store.get(T)
            refused.set()

        nursery.start_soon(follow)
        with trio.fail_after(10):
            await held.wait()
            await store.delete(f"{CLAIMS}/public/default")  # as its session's end does
            assert await here.policies.store.get(T) == {"maxMessageSize": 1}
            await here.policies.store.update(T, having(maxMessageSize=2))
            go.set()
            await refused.wait()
        for service in (here, there):
            assert await service.policies.store.get(T) == {"maxMessageSize": 2}
        assert not await store.children("/admin/topic-policies/public/default")


async def test_a_claim_that_ended_takes_none_away() -> None:
    store = MemoryMetadataStore()
    path = f"{CLAIMS}/public/default"
    async with OlderRecords(store).claimed("public/default"):
        await store.delete(path)
        other = store.another_session()
        await other.put(path, b"", epoch=other.session.epoch)
    assert await store.exists(path), "it is the other one's"


async def test_events_of_other_namespaces_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers() as (service,):
        alien = TopicName.parse("persistent://public/other/t")
        payload = encode(alien, {"maxMessageSize": 1}, is_global=False, cluster="standalone")
        async with client_of_broker(service) as client:
            schema = AlreadyEncoded(SchemaInfo("", SchemaType.AVRO, EVENT_TEXT, PROPERTIES))
            async with client.create_producer(str(EVENTS), schema=schema) as producer:
                await producer.send(payload, partition_key=str(alien))
        await service.policies.store.update(T, having(maxMessageSize=2))
        assert await service.policies.store.get(T) == {"maxMessageSize": 2}
    assert "of a topic of another namespace" in caplog.text


async def test_deleted_namespaces_are_followed_no_more() -> None:
    """One that is made again under the name begins anew."""
    async with brokers() as (service,):
        store, namespaces = service.policies.store, service.namespaces
        assert isinstance(store, SystemTopicPolicies)
        topic = TopicName.parse("persistent://public/brief/t")
        for _ in range(3):
            await namespaces.create("public/brief", bundles=1, clusters=("standalone",))
            await store.update(topic, having(maxMessageSize=7))
            assert await store.get(topic) == {"maxMessageSize": 7}
            assert list(store._followers) == ["public/brief"]
            (events,) = [name for name in service.topics.loaded if "public/brief" in name]
            await service.topics.delete(TopicName.parse(events), force=True)
            await namespaces.delete("public/brief")
            await trio.testing.wait_all_tasks_blocked()
            assert not store._followers
            assert await store.get(topic) == {}
            assert not store._followers
