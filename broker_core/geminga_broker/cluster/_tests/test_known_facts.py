"""What is remembered of a namespace's records is what they say now."""

from __future__ import annotations

import json

import pytest

from geminga_broker.cluster import bookie_affinity, namespaces
from geminga_broker.cluster.bookie_affinity import BookieAffinity
from geminga_broker.cluster.namespaces import Namespaces
from geminga_runtime.metadata.memory import MemoryMetadataStore

NAME = "public/default"


async def test_facts_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "BUNDLES_KEPT_MAX", 1)
    found = Namespaces(MemoryMetadataStore())
    await found.bootstrap("standalone", {}, 4)
    for limit, allowed in ((5, True), (6, False), (0, True)):
        override = {"allowAutoTopicCreation": allowed}
        changed = {"max_topics_per_namespace": limit, "autoTopicCreationOverride": override}
        await found.tenants.update(NAME, lambda old, new=changed: old | new)
        assert await found.topics_max(NAME, 9) == limit
        assert await found.topics_max("pulsar/system", 9) == 9
        assert await found.auto_creation(NAME) == override
    async with found.being_deleted(NAME):
        assert not await found.exists(NAME)
    assert not (await found.policies(NAME)).get("nothing")
    await found.tenants.delete(NAME)
    assert not await found.exists(NAME)
    assert (await found.topics_max(NAME, 9), await found.auto_creation(NAME)) == (9, None)


@pytest.mark.parametrize("wrong", ["x", 1.5, None, [], {}])
async def test_facts_of_a_wrong_type_say_nothing(wrong: object) -> None:
    store = MemoryMetadataStore()
    record = {"max_topics_per_namespace": wrong, "autoTopicCreationOverride": [wrong], "deleted": 1}
    await store.put(f"/admin/policies/{NAME}", json.dumps(record).encode())
    found = Namespaces(store)
    assert await found.topics_max(NAME, 9) == 9
    assert await found.auto_creation(NAME) is None
    assert await found.exists(NAME)


async def test_groups_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookie_affinity, "NAMESPACES_KEPT_MAX", 2)
    store = MemoryMetadataStore()
    affinity = BookieAffinity(store)
    about = {"pulsar/managed-ledger": f"{NAME}/persistent/t".encode()}
    other = {"pulsar/managed-ledger": b"public/other/persistent/t"}
    await store.put("/admin/local-policies/public/other", b"{}")
    for group in ("red", "blue", None, "red"):
        groups = {"bookkeeperAffinityGroupPrimary": group}
        record = {"bookieAffinityGroup": groups if group else None}
        await store.put(f"/admin/local-policies/{NAME}", json.dumps(record).encode())
        for _ in range(2):
            said = b"".join((await affinity.of_ledger(about)).values())
            assert (group or "").encode() in said
            assert bool(said) == bool(group)
        assert await affinity.of_ledger(other) == {}
    await store.delete(f"/admin/local-policies/{NAME}")
    assert await affinity.of_ledger(about) == {}
