"""Brokers by their ids."""

from __future__ import annotations

import pytest

from geminga_broker.ownership.brokers import BROKERS_PATH, ActiveBrokers
from geminga_runtime.metadata.memory import MemoryMetadataStore


@pytest.mark.parametrize("broker_id", ["a:8080", "[::1]:8080", "b.example.org:1"])
async def test_a_registered_broker_is_found(broker_id: str) -> None:
    store = MemoryMetadataStore()
    brokers = ActiveBrokers(store)
    assert not await brokers.is_active(broker_id)
    await store.put(f"{BROKERS_PATH}/{broker_id}", b'{"webServiceUrl": "http://x:1"}')
    assert await brokers.is_active(broker_id)
    record = await brokers.record(broker_id)
    assert record is not None
    assert record.addresses.web_url == "http://x:1"


@pytest.mark.parametrize("text", ["", "/", "a//b:1", "..", ".", "a:1/", "a/../b:1", "a\0:1", "a"])
async def test_another_text_is_no_broker(text: str) -> None:
    """It would be a path that the store takes for an error of ours, or another node."""
    store = MemoryMetadataStore()
    await store.put(f"{BROKERS_PATH}/a", b"{}")
    brokers = ActiveBrokers(store)
    assert not await brokers.is_active(text)
    assert await brokers.record(text) is None
