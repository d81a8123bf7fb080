"""What must not harm a broker that follows policies: events, failures and takeovers of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

import geminga
from geminga.schema import AlreadyEncoded, SchemaInfo, SchemaType
from geminga_bookie.memory import MemoryBookie
from geminga_broker.change_events._tests.followed import (
    EVENTS,
    OLDER,
    T,
    brokers,
    having,
)
from geminga_broker.change_events.api import EventsUnavailable, UnfitPolicy
from geminga_broker.change_events.avro_schema import EVENT_TEXT, PROPERTIES
from geminga_broker.change_events.client_events import ClientEvents
from geminga_broker.change_events.codec import encode
from geminga_broker.change_events.older_records import CLAIMS, OlderRecords
from geminga_broker.change_events.store import SystemTopicPolicies
from geminga_broker.inner_client import client_of_broker
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.own_nodes import delete_own


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


async def test_a_takeover_that_stood_still_changes_nothing() -> None:
    """Another broker has taken over meanwhile, and the policies were changed since."""
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    older = OlderRecords(store)
    await store.put(f"{OLDER}/t", b'{"maxMessageSize": 1}')
    (record,) = await older.of("public/default")
    async with older.claimed("public/default") as claim:
        await claim.check(record)
        other = store.another_session()
        await store.delete(f"{CLAIMS}/public/default")
        async with OlderRecords(other).claimed("public/default"):
            with pytest.raises(StoreUnavailable, match="the claim is gone"):
                await claim.check(record)
            await older.forget("public/default", [record])
            with pytest.raises(StoreUnavailable, match="taken over meanwhile"):
                await claim.check(record)
            await claim_end(older)
            assert await other.exists(f"{CLAIMS}/public/default"), "it is the other one's"
    async with brokers(store=store, bookie=bookie) as (service,):
        assert await service.policies.store.get(T) == {}


async def claim_end(older: OlderRecords) -> None:
    """What the end of a claim does whose session has ended."""
    await delete_own(older._store, f"{CLAIMS}/public/default")


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
