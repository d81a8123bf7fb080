"""Namespaces keep to groups of bookies (BK-25)."""

from __future__ import annotations

import json

import pytest

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.placement_rules import (
    POLICY_KEY,
    Isolation,
    PlacementRules,
    isolation_of,
)
from geminga_bookie.memory import MemoryBookie
from geminga_broker.cluster.bookie_affinity import BookieAffinity
from geminga_broker.log.options import LedgerDurability
from geminga_runtime.metadata.memory import MemoryMetadataStore

BUNDLES = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}


async def policies(store: MemoryMetadataStore, namespace: str, groups: object) -> None:
    """As Pulsar's broker writes them."""
    record = {"bundles": BUNDLES, "bookieAffinityGroup": groups, "migrated": False}
    await store.put(f"/admin/local-policies/{namespace}", json.dumps(record).encode())


async def test_ledgers_of_a_namespace_with_groups() -> None:
    store = MemoryMetadataStore()
    groups = {
        "bookkeeperAffinityGroupPrimary": "red",
        "bookkeeperAffinityGroupSecondary": "blue,green",
    }
    await policies(store, "public/shop", groups)
    await policies(store, "public/free", None)
    bookies = KnownBookies([MemoryBookie(f"b{n}") for n in range(4)])
    bookies.placement = PlacementRules(groups={"red": frozenset({"b2"}), "grey": frozenset({"b3"})})
    client = BookkeeperClient(bookies, store, describe=BookieAffinity(store).of_ledger)
    for _ in range(8):
        options = LedgerDurability().ledger_options("public/shop/persistent/t", "cursor")
        writer = await client.create(options)
        metadata = await client.metadata(writer.ledger_id)
        assert metadata.ensembles[0] == ("b2",)
        found = isolation_of(metadata.custom_metadata)
        assert found == Isolation(frozenset({"red"}), frozenset({"blue", "green"}))
        assert metadata.custom_metadata["pulsar/cursor"] == b"cursor"
    seen: set[str] = set()
    for name in ("public/free/persistent/t", "public/none/persistent/t"):
        for _ in range(8):
            writer = await client.create(LedgerDurability().ledger_options(name))
            metadata = await client.metadata(writer.ledger_id)
            assert POLICY_KEY not in metadata.custom_metadata
            seen.update(metadata.ensembles[0])
    assert seen == {"b0", "b1", "b2", "b3"}
    await client.create(LedgerOptions())


@pytest.mark.parametrize("groups", [[], "red", {}, {"bookkeeperAffinityGroupPrimary": 1}])
async def test_groups_that_say_nothing(groups: object) -> None:
    store = MemoryMetadataStore()
    await policies(store, "a/b", groups)
    owner = {"pulsar/managed-ledger": b"a/b/persistent/t"}
    assert await BookieAffinity(store).of_ledger(owner) == {}
