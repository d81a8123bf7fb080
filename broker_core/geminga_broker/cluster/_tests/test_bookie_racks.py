"""The record of racks and groups (BK-25)."""

from __future__ import annotations

import json

import pytest
import trio

from geminga_bookie.racks import BOOKIES, parse_racks
from geminga_broker.cluster.bookie_racks import BookieRacks
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import ResourceMissing
from geminga_runtime.metadata.api import MetadataError
from geminga_runtime.metadata.memory import MemoryMetadataStore


async def stored(store: MemoryMetadataStore) -> object:
    node = await store.get(BOOKIES)
    assert node is not None
    return json.loads(node.value)


async def test_a_bookie_is_in_one_group() -> None:
    store = MemoryMetadataStore()
    racks = BookieRacks(store)
    await racks.put("b:1", "red", {"rack": "/r1"})
    await racks.put("a:1", "red", {"rack": "/r2"})
    assert list((await racks.groups())["red"]) == ["a:1", "b:1"]
    await racks.put("b:1", "blue", {"rack": "/r3"})
    assert await stored(store) == {
        "blue": {"b:1": {"rack": "/r3"}},
        "red": {"a:1": {"rack": "/r2"}},
    }
    node = await store.get(BOOKIES)
    assert node is not None
    found = parse_racks(node.value, lambda _id: None)
    assert found.by_bookie == {"a:1": "/r2", "b:1": "/r3"}
    assert found.groups == {"blue": {"b:1"}, "red": {"a:1"}}
    await racks.remove("a:1")
    assert await stored(store) == {"blue": {"b:1": {"rack": "/r3"}}}
    with pytest.raises(ResourceMissing):
        await racks.remove("a:1")
    with pytest.raises(ResourceMissing):
        await racks.bookie("a:1")


async def test_what_others_wrote_is_kept() -> None:
    store = MemoryMetadataStore()
    racks = BookieRacks(store)
    await store.put(BOOKIES, b"")
    assert await racks.groups() == {}
    await store.put(BOOKIES, b'{"red": {"a:1": {"rack": "/r", "more": [1]}}}')
    await racks.put("b:1", "red", {})
    assert await stored(store) == {"red": {"a:1": {"rack": "/r", "more": [1]}, "b:1": {}}}
    for text in (b'{"\xff": {}}', b"[]"):
        await store.put(BOOKIES, text)
        for call in (racks.groups(), racks.put("c:1", "red", {}), racks.remove("a:1")):
            with pytest.raises(MetadataError, match="can't be read"):
                await call
    assert await stored(store) == []


async def test_no_rack_is_lost_to_another_one() -> None:
    store = MemoryMetadataStore()
    first, second = BookieRacks(store), BookieRacks(store.another_session())
    async with trio.open_nursery() as nursery:
        for number in range(20):
            racks = first if number % 2 else second
            nursery.start_soon(racks.put, f"b{number}:1", "g", {"rack": f"/{number}"})
    assert len((await first.groups())["g"]) == 20


async def test_local_policies_are_made_when_they_are_missing() -> None:
    """Those of a namespace that another cluster made; with the namespace's bundles."""
    store = MemoryMetadataStore()
    namespaces = Namespaces(store)
    await namespaces.create_tenant("t", (), ("c",))
    await namespaces.create("t/n", bundles=3, clusters=("c",))
    for is_there in (True, False):
        if not is_there:
            await namespaces.local_policies.delete("t/n")
        await namespaces.change_local_policies("t/n", lambda old: old | {"x": 1})
        record = await namespaces.local_policies.get("t/n")
        assert record is not None
        assert record["x"] == 1
        assert len((await namespaces.bundles("t/n")).names()) == 3
    with pytest.raises(ResourceMissing):
        await namespaces.change_local_policies("t/none", lambda old: old)
    assert not await namespaces.local_policies.exists("t/none")
