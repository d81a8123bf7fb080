"""Partition records, topic lists, patterns and the rules of automatic creation."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.cluster.catalog import (
    Mode,
    TopicCatalog,
    by_mode,
    compile_pattern,
    list_hash,
    matching,
    topic_of_ledger_path,
    without_system,
)
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import ResourceChanged, ResourceExists, ResourceMissing
from geminga_broker.config import TopicConfig
from geminga_broker.errors import BrokerError
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import Stat
from geminga_runtime.metadata.memory import MemoryMetadataStore

A = TopicName.parse("persistent://public/default/a")


async def catalog(**settings: object) -> tuple[MemoryMetadataStore, Namespaces, TopicCatalog]:
    store = MemoryMetadataStore()
    namespaces = Namespaces(store)
    await namespaces.bootstrap("standalone", {}, 4)
    return store, namespaces, TopicCatalog(store, namespaces, TopicConfig(**settings))


async def test_partition_records_have_apaches_paths() -> None:
    store, _, topics = await catalog()
    name = TopicName.parse("persistent://public/default/a b")
    await topics.create_partitioned(name, 3)
    node = await store.get("/admin/partitioned-topics/public/default/persistent/a+b")
    assert node is not None
    assert node.value == b'{"partitions":3,"deleted":false}'
    assert await topics.partitions(name) == 3
    assert await topics.partitioned("public/default", "persistent") == [str(name)]
    assert await topics.partitioned("public/default", "non-persistent") == []
    with pytest.raises(ResourceExists):
        await topics.create_partitioned(name, 3)
    await topics.grow_partitioned(name, 5)
    assert await topics.partitions(name) == 5
    with pytest.raises(ResourceChanged):
        await topics.delete_partitioned(name)
    async with topics.being_deleted(name) as count:
        assert count == 5
        await topics.delete_partitioned(name)
    assert await topics.partitions(name) == 0
    with pytest.raises(ResourceMissing):
        await topics.delete_partitioned(name)
    assert await topics.metadata(name) == (0, None)


async def test_a_topic_never_shrinks() -> None:
    """Of two calls that let it grow at once the later one may name fewer partitions."""
    _, _, topics = await catalog()
    await topics.create_partitioned(A, 3)
    await topics.grow_partitioned(A, 7)
    await topics.grow_partitioned(A, 5)
    assert await topics.partitions(A) == 7


async def test_a_topic_that_is_being_deleted_does_not_grow() -> None:
    """Its deletion would leave the new partitions."""
    _, _, topics = await catalog()
    await topics.create_partitioned(A, 3)
    async with topics.being_deleted(A) as count:
        with pytest.raises(ResourceMissing):
            await topics.grow_partitioned(A, 5)
        assert await topics.partitions(A) == count == 3
        await topics.delete_partitioned(A)


@pytest.mark.parametrize("is_over", [True, False])
async def test_no_partition_is_made_behind_a_deletion(is_over: bool) -> None:
    _, _, topics = await catalog()
    await topics.create_partitioned(A, 3)
    async with topics.being_deleted(A):
        if not is_over:
            await topics.create_partitions(A, range(3))
        await topics.delete_partitioned(A)
    await topics.create_partitions(A, range(3))
    assert await topics.persistent("public/default") == []


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_cancelled_request_leaves_no_partition_behind_a_deletion(
    monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """Neither one whose write was cancelled, and took effect."""
    store, _, topics = await catalog()
    await topics.create_partitioned(A, 3)
    put, puts = store.put, 0

    async def slow(*args: Any, **more: Any) -> tuple[str, Stat]:
        nonlocal puts
        puts += 1
        if puts < 2 or is_written:
            made = await put(*args, **more)
        if puts == 2:
            await trio.sleep_forever()
        return made

    async with topics.being_deleted(A), trio.open_nursery() as nursery:
        monkeypatch.setattr(store, "put", slow)
        nursery.start_soon(topics.create_partitions, A, range(3))
        await wait_all_tasks_blocked()
        assert str(A.partition(0)) in await topics.persistent("public/default")
        nursery.cancel_scope.cancel()
    assert await topics.persistent("public/default") == []


async def test_a_request_that_is_cancelled_in_its_last_check_leaves_no_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _, topics = await catalog()
    await topics.create_partitioned(A, 3)
    delete, is_first = store.delete, True

    async def slow(*args: Any) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            await trio.sleep_forever()
        await delete(*args)

    async with topics.being_deleted(A), trio.open_nursery() as nursery:
        monkeypatch.setattr(store, "delete", slow)
        nursery.start_soon(topics.create_partitions, A, range(3))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert await topics.persistent("public/default") == []


async def test_a_slow_store_leaves_no_partition_behind_a_deletion(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    store, _, topics = await catalog()
    await topics.create_partitioned(A, 3)
    delete = store.delete

    async def slow(*args: Any) -> None:
        await trio.sleep(6)
        await delete(*args)

    async with topics.being_deleted(A):
        monkeypatch.setattr(store, "delete", slow)
        await topics.create_partitions(A, range(3))
        assert await topics.persistent("public/default") == []


async def test_a_partition_that_is_used_by_now_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _, topics = await catalog()
    await topics.create_partitioned(A, 2)
    put = store.put

    async def taken(path: str, *args: Any) -> tuple[str, Stat]:
        return await put(path, b"of a log", *args[1:])

    monkeypatch.setattr(store, "put", taken)
    await topics.create_partitions(A, [3])
    assert await topics.persistent("public/default") == [str(A.partition(3))]


async def test_partitions_that_a_later_topic_of_the_name_has_too_are_made() -> None:
    store, _, topics = await catalog()
    await topics.create_partitioned(A, 2)
    await topics.create_partitions(A, range(4))
    assert await topics.persistent("public/default") == [str(A.partition(n)) for n in range(2)]
    used = f"/managed-ledgers/{A.partition(3).persistence_naming_encoding}"
    await store.put(used, b"")
    await topics.create_partitions(A, [3])
    assert await store.exists(used), "it was there before"


async def test_properties_and_limit_of_partitioned_topics() -> None:
    _, _, topics = await catalog(partitions_max=4)
    await topics.create_partitioned(A, 4, {"k": "v"})
    assert await topics.metadata(A) == (4, {"k": "v"})
    await topics.change_properties(A, lambda old: {**old, "l": "w"})
    assert await topics.metadata(A) == (4, {"k": "v", "l": "w"})
    await topics.change_properties(A, lambda old: {})
    assert await topics.metadata(A) == (4, {})
    with pytest.raises(ResourceMissing):
        await topics.change_properties(TopicName.parse("b"), dict)
    with pytest.raises(BrokerError, match="less than or equal to 4"):
        await topics.create_partitioned(TopicName.parse("b"), 5)


async def test_stored_topics_of_a_namespace() -> None:
    store, _, topics = await catalog()
    await store.put("/managed-ledgers/public/default/persistent/b", b"x")
    await store.put("/managed-ledgers/public/default/persistent/a+%2F1/sub", b"x")
    assert await topics.persistent("public/default") == [
        "persistent://public/default/a /1",
        "persistent://public/default/b",
    ]
    assert await topics.is_stored(TopicName.parse("b"))
    assert not await topics.is_stored(A)


async def test_unknown_topics_are_created_by_policy() -> None:
    _, namespaces, topics = await catalog()
    assert await topics.resolve_partitions(A, create=True, exists=False) == 0
    await namespaces.tenants.update(
        "public/default",
        lambda old: (
            old
            | {
                "autoTopicCreationOverride": {
                    "allowAutoTopicCreation": True,
                    "topicType": "partitioned",
                    "defaultNumPartitions": 6,
                }
            }
        ),
    )
    assert await topics.resolve_partitions(A, create=True, exists=True) == 0
    assert await topics.resolve_partitions(A.partition(0), create=True, exists=False) == 0
    assert await topics.resolve_partitions(A, create=True, exists=False) == 6
    assert await topics.partitions(A) == 6


async def test_a_partition_exists_if_it_is_stored() -> None:
    """Where nothing is to be made, a deleted one isn't, as Apache's broker answers."""
    _, _, topics = await catalog()
    await topics.create_partitioned(A, 2)
    for n in (1, 2):
        assert await topics.resolve_partitions(A.partition(n), create=False, exists=True) == 0
        with pytest.raises(BrokerError, match=f"partition-{n} not found") as caught:
            await topics.resolve_partitions(A.partition(n), create=False, exists=False)
        assert caught.value.code == ServerError.TopicNotFound
    assert await topics.resolve_partitions(A.partition(1), create=True, exists=False) == 0
    with pytest.raises(BrokerError, match="partition-2 not found"):  # behind the last one
        await topics.resolve_partitions(A.partition(2), create=True, exists=False)


@pytest.mark.parametrize("settings", [{"allow_auto_creation": False}, {}])
async def test_unknown_topics_are_refused(settings: dict[str, object]) -> None:
    _, _, topics = await catalog(**settings)
    with pytest.raises(BrokerError) as caught:
        await topics.resolve_partitions(A, create=settings != {}, exists=False)
    assert caught.value.code == ServerError.TopicNotFound
    with pytest.raises(BrokerError, match="Namespace not found"):
        await topics.resolve_partitions(TopicName.parse("x/y/z"), create=True, exists=False)


NAMES = ["persistent://t/n/a", "persistent://t/n/ab", "non-persistent://t/n/a"]


def test_modes() -> None:
    assert by_mode(NAMES, Mode.PERSISTENT) == NAMES[:2]
    assert by_mode(NAMES, Mode.NON_PERSISTENT) == NAMES[2:]
    assert by_mode(NAMES, Mode.ALL) == NAMES


def test_system_topics_are_left_out() -> None:
    system = ["persistent://t/n/__change_events", "persistent://t/n/__change_events-partition-1"]
    assert without_system(NAMES + system) == NAMES


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("t/n/a.*", NAMES),
        ("persistent://t/n/a", [NAMES[0], NAMES[2]]),
        ("^persistent://t/n/ab$", [NAMES[1]]),
        ("t/n", []),
        ("t/n/(a|b)b?", NAMES),
    ],
)
def test_patterns(pattern: str, expected: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    assert matching(NAMES, compiled) == expected


def test_partitions_match_by_the_name_of_their_topic() -> None:
    names = ["persistent://t/n/a-partition-0", "persistent://t/n/a-partition-x", NAMES[0]]
    whole, part = compile_pattern("persistent://t/n/a"), compile_pattern("t/n/a-partition-.*")
    assert whole is not None
    assert part is not None
    assert matching(names, whole) == [names[0], names[2]]
    assert matching(names, part) == [names[1]]


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", "(a{1000}){1000}", r"(a)\1", "a**"])
def test_patterns_outside_of_re2_are_left_to_the_client(pattern: str) -> None:
    assert compile_pattern(pattern) is None


@pytest.mark.alone
@pytest.mark.parametrize(
    "pattern",
    ["t/n/(a+)+", ".*.*.*.*z", "((a|a))*z", ".*.*.*" + ".?" * 21 + "z", "(a|a)" * 9 + "z"],
)
def test_no_pattern_blocks_the_loop(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    names = ["persistent://t/n/" + "a" * 10_000 + "!"]
    assert matching(names, compiled) == []
    assert cpu_s(lambda: matching(names, compiled), 1) < 1


def test_list_hash_is_apaches() -> None:
    names = ["persistent://public/default/b", "persistent://public/default/a"]
    assert list_hash(names) == list_hash(reversed(names)) == "c7559e98"
    assert list_hash([]) == "00000000"


def test_topics_of_ledger_paths() -> None:
    assert topic_of_ledger_path("/managed-ledgers/t/n/persistent/a%2Fb") == "persistent://t/n/a/b"
    for path in ("/managed-ledgers/t/n/persistent", "/managed-ledgers/t/n/persistent/a/sub", "/x"):
        assert topic_of_ledger_path(path) is None
