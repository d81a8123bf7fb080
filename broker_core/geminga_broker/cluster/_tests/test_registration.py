"""The broker's record (spec PX-03)."""

from __future__ import annotations

import json

import trio
import trio.testing

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.registration import registered
from geminga_broker.ownership.brokers import BROKERS_PATH
from geminga_runtime.metadata.memory import MemoryMetadataStore

EVERY = Addresses("pulsar://h:6650", "http://h:8080", "pulsar+ssl://h:6651", "https://h:8443")


async def test_the_record_exists_while_the_broker_runs() -> None:
    store = MemoryMetadataStore()
    async with registered(store, EVERY):
        assert await store.children(BROKERS_PATH) == ["h:8080"]
        node = await store.get(f"{BROKERS_PATH}/h:8080")
        assert node is not None
        assert node.stat.ephemeral
        found = json.loads(node.value)
        assert found["pulsarServiceUrl"] == "pulsar://h:6650"
        assert found["pulsarServiceUrlTls"] == "pulsar+ssl://h:6651"
        assert (found["webServiceUrl"], found["webServiceUrlTls"]) == (
            "http://h:8080",
            "https://h:8443",
        )
        assert found["loadReportType"] == "LocalBrokerData"
    assert await store.children(BROKERS_PATH) == []


async def test_the_record_is_made_anew_in_each_session() -> None:
    store = MemoryMetadataStore()
    path = f"{BROKERS_PATH}/h:8080"
    async with registered(store, EVERY):
        for _ in range(3):
            epoch = store.session.epoch
            store.expire_session()
            assert not await store.exists(path)
            await store.wait_change(epoch)
            with trio.fail_after(10):
                while not await store.exists(path):
                    await trio.testing.wait_all_tasks_blocked()
            node = await store.get(path)
            assert node is not None
            assert node.stat.ephemeral
            assert node.stat.created_by_self
    assert not await store.exists(path)


async def test_a_record_of_an_earlier_session_is_replaced() -> None:
    """It would be deleted with that session."""
    store = MemoryMetadataStore()
    path = f"{BROKERS_PATH}/h:8080"
    await store.put(path, b"of a broker that was killed")
    async with registered(store, EVERY):
        node = await store.get(path)
        assert node is not None
        assert node.stat.ephemeral
        assert node.value != b"of a broker that was killed"


def test_ids() -> None:
    assert EVERY.broker_id == "h:8080"
    assert EVERY._replace(web_url="").broker_id == "h:8443"
    assert Addresses("pulsar://[::1]:6650", "", "", "").broker_id == "[::1]:6650"
    assert Addresses("", "", "pulsar+ssl://h:6651", "").broker_id == "h:6651"
