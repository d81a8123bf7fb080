"""The broker's record (spec PX-03)."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from geminga_broker.cluster.lookup import Addresses
from geminga_broker.cluster.registration import BROKERS_PATH, registered
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.settings import ConfigError

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


async def test_a_broker_that_must_not_register_again_ends() -> None:
    store = MemoryMetadataStore()
    beside = False

    async def may() -> None:
        if beside:
            raise ConfigError("another one serves")

    with pytest.RaisesGroup(ConfigError):
        async with registered(store, EVERY, may):
            beside = True
            store.expire_session()
            with trio.fail_after(10):
                await trio.sleep_forever()
    assert not await store.exists(f"{BROKERS_PATH}/h:8080")


async def test_of_two_that_start_at_once_one_ends() -> None:
    """Both looked for the other one before either was registered."""
    store = MemoryMetadataStore()
    path = f"{BROKERS_PATH}/other:8080"
    asked = 0

    async def may() -> None:
        nonlocal asked
        asked += 1
        if await store.exists(path):
            raise ConfigError("another one serves")
        await store.put(path, b"")

    with pytest.raises(ConfigError):
        async with registered(store, EVERY, may):
            raise AssertionError("both serve")
    assert asked == 2
    assert await store.children(BROKERS_PATH) == ["other:8080"]


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
