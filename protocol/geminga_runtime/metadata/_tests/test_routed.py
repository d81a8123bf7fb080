"""Two stores as one (spec CL-02)."""

from __future__ import annotations

import pytest

from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, NoNode
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.routed import RoutedMetadataStore

SHARED = [
    "/admin/clusters/c1",
    "/admin/policies/t/n",
    "/admin/partitioned-topics/t",
    "/admin/resourcegroups/r",
]
OWN = [
    "/admin/local-policies/t/n",
    "/admin/topic-policies/t/n",
    "/admin/configuration",
    "/administrators",
    "/ledgers/LAYOUT",
    "/managed-ledgers/t/n/persistent/x",
    "/loadbalance/brokers/h:8080",
]


@pytest.fixture
def stores() -> tuple[MemoryMetadataStore, MemoryMetadataStore, RoutedMetadataStore]:
    own, configuration = MemoryMetadataStore(), MemoryMetadataStore()
    return own, configuration, RoutedMetadataStore(own, configuration)


@pytest.mark.parametrize("path", [*SHARED, *OWN])
async def test_each_path_has_its_store(
    stores: tuple[MemoryMetadataStore, MemoryMetadataStore, RoutedMetadataStore], path: str
) -> None:
    own, configuration, both = stores
    here, there = (configuration, own) if path in SHARED else (own, configuration)
    await both.put(path, b"1", MUST_NOT_EXIST)
    assert await here.exists(path)
    assert not await there.exists(path)
    await there.put(path, b"never read")
    node = await both.get(path)
    assert node is not None
    assert node.value == b"1"
    with pytest.raises(BadVersion):
        await both.put(path, b"2", node.stat.version + 1)
    await both.delete(path, node.stat.version)
    assert not await both.exists(path)
    assert await there.exists(path)
    with pytest.raises(NoNode):
        await both.delete(path)


async def test_children_above_a_border_are_those_of_both(
    stores: tuple[MemoryMetadataStore, MemoryMetadataStore, RoutedMetadataStore],
) -> None:
    both = stores[2]
    for path in ("/admin/clusters/c1", "/admin/local-policies/t", "/ledgers/x"):
        await both.put(path, b"")
    assert await both.children("/admin") == ["clusters", "local-policies"]
    assert await both.children("/") == ["admin", "ledgers"]
    assert await both.children("/admin/clusters") == ["c1"]


async def test_watches_and_sessions_are_of_one_store(
    stores: tuple[MemoryMetadataStore, MemoryMetadataStore, RoutedMetadataStore],
) -> None:
    own, configuration, both = stores
    async with both.watch("/admin/policies") as changes:
        await own.put("/admin/policies/t", b"elsewhere")
        await configuration.put("/admin/policies/u", b"")
        seen = {(await changes.receive()).path for _ in range(2)}
        assert seen == {"/admin/policies", "/admin/policies/u"}
    for above in ("/", "/admin"):
        with pytest.raises(ValueError, match="two stores"):
            both.watch(above)
    epoch = both.session.epoch
    await both.put("/loadbalance/brokers/b", b"", epoch=epoch)
    with pytest.raises(ValueError, match="not ephemeral"):
        await both.put("/admin/clusters/c", b"", epoch=epoch)
    await both.aclose()
    assert own.session.phase.value == configuration.session.phase.value == "closed"
