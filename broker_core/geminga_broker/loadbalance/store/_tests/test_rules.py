"""What administrators say about placement, as it is read and followed."""

from __future__ import annotations

import json

import pytest
import trio

from geminga_broker.loadbalance.store.rules import RuleReader
from geminga_runtime.metadata.api import Node, StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

POLICIES = "/admin/clusters/c/namespaceIsolationPolicies"
ISOLATED = {
    "one": {
        "namespaces": ["public/.*"],
        "primary": ["a.*"],
        "secondary": ["b.*"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
}


class Store(MemoryMetadataStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.away = False

    async def get(self, path: str) -> Node | None:
        self.read.append(path)
        await trio.lowlevel.checkpoint()
        if self.away:
            raise StoreUnavailable("away")
        return await super().get(path)


async def _put(store: MemoryMetadataStore, path: str, value: object) -> None:
    await store.put(path, json.dumps(value).encode())


async def _group(store: MemoryMetadataStore, namespace: str, group: str | None) -> None:
    record: dict[str, object] = {"bundles": {"numBundles": 1}}
    if group is not None:
        record["namespaceAntiAffinityGroup"] = group
    await _put(store, f"/admin/local-policies/{namespace}", record)


async def test_isolation_policies_groups_and_domains() -> None:
    store = Store()
    await _put(store, POLICIES, ISOLATED)
    await _group(store, "public/a", "g")
    await _group(store, "public/b", None)
    await _put(store, "/admin/clusters/c/failureDomain/left", {"brokers": ["a:80", "b:80"]})
    reader = RuleReader(store, "c")
    async with reader.following():
        rules = await reader.current(["public/a", "public/b", "no/where"], with_domains=True)
        assert rules.isolation.allowed("public/a", ["a1:80", "b1:80"]) == ["a1:80"]
        assert rules.members("public/a") == ["public/a"]
        assert rules.members("public/b") == []
        assert rules.domains == {"a:80": "left", "b:80": "left"}
        assert (await reader.current([], with_domains=False)).domains == {}


async def test_what_was_read_is_kept_until_it_changes() -> None:
    store = Store()
    await _put(store, POLICIES, ISOLATED)
    for namespace in ("public/a", "public/b"):
        await _group(store, namespace, "g")
    reader = RuleReader(store, "c")
    async with reader.following():
        first = await reader.current(["public/a", "public/b"], with_domains=False)
        store.read.clear()
        assert await reader.current(["public/a"], with_domains=False) is first
        assert store.read == []
        await _group(store, "public/b", "h")
        await _group(store, "other/unknown", "x")
        second = await reader.current([], with_domains=False)
        assert second.members("public/a") == ["public/a"]
        assert store.read == ["/admin/local-policies/public/b"]
        assert set(first.members("public/a")) == {"public/a", "public/b"}
        await store.delete("/admin/local-policies/public/a")
        await store.put(POLICIES, b"{}")
        third = await reader.current(["public/a"], with_domains=False)
        assert third.members("public/a") == []
        assert third.members("public/b") == ["public/b"]
        assert third.isolation.allowed("public/a", ["z:80"]) == ["z:80"]


async def test_missed_changes_make_it_read_all_anew() -> None:
    store = Store()
    await _group(store, "public/a", "g")
    reader = RuleReader(store, "c")
    async with reader.following():
        await reader.current(["public/a"], with_domains=False)
        for number in range(3000):
            await _group(store, f"public/n{number}", None)
        await _group(store, "public/a", "h")
        await reader.current([], with_domains=False)
        await _group(store, "public/b", "h")
        rules = await reader.current(["public/b"], with_domains=False)
        assert set(rules.members("public/a")) == {"public/a", "public/b"}


async def test_without_a_watch_all_is_read_each_time() -> None:
    store = Store()
    reader = RuleReader(store, "c")
    await reader.current(["public/a"], with_domains=False)
    await _group(store, "public/a", "h")
    assert (await reader.current([], with_domains=False)).members("public/a") == ["public/a"]


async def test_a_record_that_is_none_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    await _put(store, POLICIES, ISOLATED)
    reader = RuleReader(store, "c")
    async with reader.following():
        await reader.current([], with_domains=True)
        await store.put(POLICIES, b"[not json")
        await store.put("/admin/clusters/c/failureDomain/left", b'{"brokers":["\xff"]}')
        await store.put("/admin/local-policies/public/a", b"{")
        rules = await reader.current(["public/a"], with_domains=True)
    assert rules.isolation.allowed("public/a", ["a1:80", "z:80"]) == ["a1:80"]
    assert (rules.members("public/a"), rules.domains) == ([], {})
    assert len(caplog.records) == 3


async def test_a_store_that_is_away_is_asked_again() -> None:
    store = Store()
    await _put(store, POLICIES, ISOLATED)
    await _group(store, "public/a", "g")
    reader = RuleReader(store, "c")
    async with reader.following():
        store.away = True
        with pytest.raises(StoreUnavailable):
            await reader.current(["public/a"], with_domains=False)
        store.away = False
        rules = await reader.current(["public/a"], with_domains=False)
        assert rules.members("public/a") == ["public/a"]
        assert rules.isolation.policies


async def test_nobody_gets_rules_that_are_half_read() -> None:
    store = Store()
    await _put(store, POLICIES, ISOLATED)
    reader = RuleReader(store, "c")
    found = []

    async def ask() -> None:
        found.append((await reader.current([], with_domains=False)).isolation.policies.keys())

    async with reader.following(), trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert found == [{"one"}] * 5
