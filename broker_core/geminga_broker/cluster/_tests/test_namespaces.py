"""Clusters, tenants, namespaces and their bundles in the metadata store."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.cluster.namespaces import HASH_MAX, Bundles, Namespaces
from geminga_broker.cluster.records import BadName, ResourceExists, ResourceInUse, ResourceMissing
from geminga_protocol.keys import bundle_hash
from geminga_runtime.metadata.memory import MemoryMetadataStore


async def standalone() -> tuple[MemoryMetadataStore, Namespaces]:
    store = MemoryMetadataStore()
    namespaces = Namespaces(store)
    await namespaces.bootstrap("standalone", {"serviceUrl": "http://h:1"}, 4)
    return store, namespaces


async def stored(store: MemoryMetadataStore, path: str) -> dict[str, object]:
    node = await store.get(path)
    assert node is not None
    return msgspec.json.decode(node.value, type=dict[str, object])


async def test_bootstrap_makes_what_apaches_standalone_makes() -> None:
    store, namespaces = await standalone()
    assert await namespaces.tenants.names() == ["public", "pulsar"]
    assert await namespaces.list("public") == ["public/default"]
    assert await namespaces.list("pulsar") == ["pulsar/system"]
    tenant = await stored(store, "/admin/policies/public")
    assert tenant == {"adminRoles": [], "allowedClusters": ["standalone"]}
    local = await stored(store, "/admin/local-policies/public/default")
    boundaries = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    assert local == {"bundles": {"boundaries": boundaries, "numBundles": 4}}


async def test_bootstrap_again_only_renews_the_addresses() -> None:
    store, namespaces = await standalone()
    await namespaces.clusters.update("standalone", lambda old: old | {"peerClusterNames": ["x"]})
    await namespaces.bootstrap("standalone", {"serviceUrl": "http://h:2"}, 8)
    assert await stored(store, "/admin/clusters/standalone") == {
        "serviceUrl": "http://h:2",
        "peerClusterNames": ["x"],
    }
    assert len((await namespaces.bundles("public/default")).names()) == 4


async def test_namespaces_need_a_tenant_and_a_good_name() -> None:
    _, namespaces = await standalone()
    with pytest.raises(ResourceMissing):
        await namespaces.create("nope/n", bundles=1, clusters=())
    with pytest.raises(BadName):
        await namespaces.create("public/a b", bundles=1, clusters=())
    with pytest.raises(BadName):
        await namespaces.create_tenant("a/b", (), ())
    with pytest.raises(ResourceExists):
        await namespaces.create("public/default", bundles=1, clusters=())


async def test_only_empty_resources_can_be_deleted() -> None:
    _, namespaces = await standalone()
    with pytest.raises(ResourceInUse):
        await namespaces.delete_tenant("public")
    await namespaces.partitioned.create("public/default/persistent/p", {"partitions": 2})
    with pytest.raises(ResourceInUse):
        await namespaces.delete("public/default")
    await namespaces.partitioned.delete("public/default/persistent/p")
    await namespaces.delete("public/default")
    assert not await namespaces.exists("public/default")
    with pytest.raises(ResourceMissing):
        await namespaces.bundles("public/default")
    await namespaces.delete_tenant("public")
    with pytest.raises(ResourceMissing):
        await namespaces.tenants.delete("public")


async def test_a_bare_parent_becomes_a_record() -> None:
    store, namespaces = await standalone()
    await store.put("/admin/policies/t/n", b"{}")
    assert not await namespaces.tenants.exists("t")
    await namespaces.create_tenant("t", ["a"], ["standalone"])
    assert await namespaces.tenants.get("t") == {
        "adminRoles": ["a"],
        "allowedClusters": ["standalone"],
    }


async def test_unknown_fields_survive_an_update() -> None:
    store, namespaces = await standalone()
    await store.put("/admin/policies/public/x", b'{"future":{"a":1}}')
    await namespaces.tenants.update("public/x", lambda old: old | {"deleted": False})
    assert await namespaces.policies("public/x") == {"future": {"a": 1}, "deleted": False}


def test_bundles_are_checked() -> None:
    for wrong in ([], [0], [1, HASH_MAX], [0, 5], [0, 7, 7, HASH_MAX], [0, 9, 3, HASH_MAX]):
        with pytest.raises(ValueError, match="bundle"):
            Bundles(wrong)
    with pytest.raises(ValueError, match="no boundaries"):
        Bundles.from_json({})


def test_topics_have_apaches_bundles() -> None:
    assert Bundles.even(4).of_topic("persistent://t1/n1/a") == "0x80000000_0xc0000000"


@given(st.integers(1, 128), st.text(min_size=1))
def test_the_bundle_holds_the_topics_hash(count: int, topic: str) -> None:
    bundles = Bundles.even(count)
    assert len(bundles.names()) == count
    low, high = (int(text, 16) for text in bundles.of_topic(topic).split("_"))
    value = bundle_hash(topic)
    assert low <= value
    assert value < high or high == HASH_MAX
    assert Bundles.from_json({"bundles": bundles.to_json()}).boundaries == bundles.boundaries
