"""The broker's record (spec PX-03)."""

from __future__ import annotations

import json

from geminga_broker.cluster.lookup import Addresses
from geminga_broker.cluster.registration import BROKERS_PATH, registered
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


def test_ids() -> None:
    assert EVERY.broker_id == "h:8080"
    assert EVERY._replace(web_url="").broker_id == "h:8443"
    assert Addresses("pulsar://[::1]:6650", "", "", "").broker_id == "[::1]:6650"
    assert Addresses("", "", "pulsar+ssl://h:6651", "").broker_id == "h:6651"
