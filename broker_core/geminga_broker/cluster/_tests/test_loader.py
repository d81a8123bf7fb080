"""Topics come into memory once, within bounds and deadlines, and leave it in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar, cast

import pytest
import trio
import trio.testing

from geminga_broker._tests.fake_log import FakeLog
from geminga_broker.cluster import loader as loading
from geminga_broker.cluster.catalog import TopicCatalog
from geminga_broker.cluster.load_needs import LOADS_A_TURN
from geminga_broker.cluster.loader import TopicLoader
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.config import BrokerConfig, TopicConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError, ManagedLedger
from geminga_broker.log.options import Persistence
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.policies.broker_options import broker_options
from geminga_broker.policies.resolve import NoTopicPolicies, PolicyResolver
from geminga_broker.topic.api import TopicEnvironment
from geminga_broker.topic.topic import Topic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime._tests.test_pace import Turned, turned
from geminga_runtime.metadata.memory import MemoryMetadataStore

P = ParamSpec("P")
R = TypeVar("R")

A = TopicName.parse("a")
KEY = str(A)
NP = "non-persistent://public/default/a"


class SlowLogs:
    """Opens logs when the test lets it."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.opened: list[str] = []
        self.error: Exception | None = None

    async def open(
        self,
        name: str,
        *,
        create: bool = True,
        persistence: Persistence | None = None,
        here: bool = False,
    ) -> ManagedLedger:
        self.opened.append(name)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return cast(ManagedLedger, FakeLog(name))


class OpenGate:
    """Owns what the test doesn't take away."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self.refused = False
        self.lost: set[BundleId] = set()
        self.taken = 0
        """How often all was lost and taken again."""

    async def admit(self, topic: TopicName) -> BundleId:
        if self.refused:
            raise BrokerError(ServerError.ServiceNotReady, "not served by this instance")
        try:
            return await self._namespaces.bundle_of(topic)
        except ResourceMissing:
            return BundleId(topic.namespace, "0x00000000_0xffffffff")

    def tenure(self, bundle: BundleId) -> int | None:
        return None if bundle in self.lost else self.taken


@asynccontextmanager
async def loader(**settings: object) -> AsyncIterator[tuple[TopicLoader, SlowLogs]]:
    config = BrokerConfig(topics=TopicConfig(**settings))
    store = MemoryMetadataStore()
    namespaces = Namespaces(store)
    await namespaces.bootstrap("standalone", {}, 4)
    logs = SlowLogs()
    async with trio.open_nursery() as nursery:
        catalog = TopicCatalog(store, namespaces, config.topics)
        environment = TopicEnvironment(nursery)
        policies = PolicyResolver(NoTopicPolicies(), namespaces, config, broker_options(config))
        gate = OpenGate(namespaces)
        yield TopicLoader(config, catalog, namespaces, logs, environment, policies, gate), logs
        nursery.cancel_scope.cancel()


async def get_into(topics: TopicLoader, name: TopicName, found: list[object], create: bool) -> None:
    try:
        found.append(await topics.get(name, create=create))
    except BrokerError as error:
        found.append(error.code)
    except LogError as error:
        found.append(error)


async def test_concurrent_requests_share_a_load() -> None:
    async with loader() as (topics, logs), trio.open_nursery() as nursery:
        found: list[object] = []
        for _ in range(5):
            nursery.start_soon(get_into, topics, A, found, True)
        await trio.testing.wait_all_tasks_blocked()
        assert topics.loading == 1
        logs.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert logs.opened == ["public/default/persistent/a"]
        assert found == [topics.topics[KEY]] * 5
        assert topics.loading == 0


async def test_a_failed_load_fails_all_waiters_and_is_retried() -> None:
    async with loader() as (topics, logs):
        logs.error = LogError("broken")
        logs.gate.set()
        found: list[object] = []
        await get_into(topics, A, found, True)
        assert [(type(each), str(each)) for each in found] == [(LogError, "broken")]
        logs.error = None
        assert await topics.get(A, create=True) is topics.topics[KEY]


async def test_a_slow_load_times_out(autojump_clock: trio.testing.MockClock) -> None:
    async with loader(load_timeout_s=60) as (topics, _):
        with pytest.raises(BrokerError) as caught:
            await topics.get(A, create=True)
        assert caught.value.code == ServerError.ServiceNotReady
        assert trio.current_time() == 60
        assert topics.loading == 0


async def test_loads_above_the_limit_wait_for_their_turn() -> None:
    async with loader(loads_max=2) as (topics, logs), trio.open_nursery() as nursery:
        found: list[object] = []
        for number in range(7):
            name = TopicName.parse(f"t{number}")
            nursery.start_soon(get_into, topics, name, found, True)
        await trio.testing.wait_all_tasks_blocked()
        assert len(logs.opened) == 2
        assert topics.loading == 7
        logs.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(found) == len(logs.opened) == len(topics.topics) == 7
        assert topics.loading == 0


async def test_the_limit_of_loads_can_be_changed() -> None:
    async with loader(loads_max=1) as (topics, logs), trio.open_nursery() as nursery:
        for number in range(7):
            name = TopicName.parse(f"t{number}")
            nursery.start_soon(get_into, topics, name, [], True)
        await trio.testing.wait_all_tasks_blocked()
        assert len(logs.opened) == 1
        topics.resize(3)
        await trio.testing.wait_all_tasks_blocked()
        assert len(logs.opened) == 3
        logs.gate.set()


async def test_waiting_for_a_turn_counts_as_loading(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with loader(loads_max=1, load_timeout_s=60) as (topics, logs):
        found: list[object] = []
        async with trio.open_nursery() as nursery:
            for number in range(3):
                name = TopicName.parse(f"t{number}")
                nursery.start_soon(get_into, topics, name, found, True)
        assert found == [ServerError.ServiceNotReady] * 3
        assert trio.current_time() == 60
        assert len(logs.opened) == 1
        logs.gate.set()
        assert await topics.get(A, create=True)


async def test_waiting_loads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LOADS_WAITING_MAX", 1)
    async with loader(loads_max=1) as (topics, _), trio.open_nursery() as nursery:
        for name in ("b", "c"):
            nursery.start_soon(get_into, topics, TopicName.parse(name), [], True)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BrokerError) as caught:
            await topics.get(A, create=True)
        assert caught.value.code == ServerError.TooManyRequests
        nursery.cancel_scope.cancel()


async def test_a_load_without_creation_does_not_refuse_a_creating_request() -> None:
    async with loader() as (topics, logs), trio.open_nursery() as nursery:
        logs.gate.set()
        found: list[object] = []
        nursery.start_soon(get_into, topics, A, found, False)
        nursery.start_soon(get_into, topics, A, found, True)
        await trio.testing.wait_all_tasks_blocked()
        assert topics.topics[KEY] in found


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("a", {"allow_auto_creation": False}, ServerError.TopicNotFound),
        ("a", {"enable_persistent": False}, ServerError.NotAllowedError),
        (NP, {"enable_non_persistent": False}, ServerError.NotAllowedError),
        ("x/y/z", {}, ServerError.TopicNotFound),
        ("p-partition-3", {}, ServerError.TopicNotFound),
        ("b", {"topics_per_namespace_max": 3}, ServerError.NotAllowedError),
    ],
)  # fmt: skip
async def test_refusals(name: str, settings: dict[str, object], code: ServerError) -> None:
    async with loader(**settings) as (topics, logs):
        logs.gate.set()
        catalog = topics._catalog
        await catalog.create_partitioned(TopicName.parse("p"), 3)
        for number in range(3):
            path = f"/managed-ledgers/public/default/persistent/stored{number}"
            await catalog._store.put(path, b"x")
        with pytest.raises(BrokerError) as caught:
            await topics.get(TopicName.parse(name), create=True)
        assert caught.value.code == code
        assert logs.opened == []


async def test_partitions_that_exist_are_loaded_whatever_the_policy() -> None:
    async with loader(allow_auto_creation=False) as (topics, logs):
        logs.gate.set()
        await topics._catalog.create_partitioned(TopicName.parse("p"), 3)
        await topics.get(TopicName.parse("p-partition-2"), create=False)
        assert logs.opened == ["public/default/persistent/p-partition-2"]


async def test_a_request_during_an_unload_loads_the_topic_again() -> None:
    async with loader() as (topics, _), trio.open_nursery() as nursery:
        name = TopicName.parse(NP)
        old = await topics.get(name, create=True)
        closing = trio.Event()

        async def slow_close(topic: Topic) -> None:
            await closing.wait()

        nursery.start_soon(topics.leave, str(name), slow_close)
        await trio.testing.wait_all_tasks_blocked()
        found: list[object] = []
        nursery.start_soon(get_into, topics, name, found, True)
        await trio.testing.wait_all_tasks_blocked()
        assert found == []
        closing.set()
        await trio.testing.wait_all_tasks_blocked()
        assert found == [topics.topics[str(name)]]
        assert found != [old]


async def test_a_topic_stays_if_its_unload_fails() -> None:
    async with loader() as (topics, _):
        name = TopicName.parse(NP)
        topic = await topics.get(name, create=True)

        async def refuse(topic: Topic) -> None:
            raise BrokerError(ServerError.NotAllowedError, "no")

        with pytest.raises(BrokerError):
            await topics.leave(str(name), refuse)
        assert await topics.get(name, create=False) is topic
        assert not await topics.leave("gone", refuse)


async def test_nothing_is_loaded_once_closed() -> None:
    async with loader() as (topics, _):
        topics.closed = True
        with pytest.raises(BrokerError) as caught:
            await topics.get(A, create=True)
        assert caught.value.code == ServerError.ServiceNotReady


def gate_of(topics: TopicLoader) -> OpenGate:
    return cast(OpenGate, topics._gate)


async def test_topics_of_other_brokers_are_not_loaded() -> None:
    async with loader() as (topics, logs):
        gate_of(topics).refused = True
        with pytest.raises(BrokerError, match="not served") as refused:
            await topics.get(A, create=True)
        assert refused.value.code == ServerError.ServiceNotReady
        assert logs.opened == []


async def test_a_bundle_that_is_lost_during_a_load() -> None:
    """The topic is closed again, and its clients look up anew; who closes the bundle waits."""
    async with loader() as (topics, logs), trio.open_nursery() as nursery:
        found: list[object] = []
        nursery.start_soon(get_into, topics, A, found, True)
        await trio.testing.wait_all_tasks_blocked()
        gate = gate_of(topics)
        bundle = await gate.admit(A)
        gate.lost.add(bundle)
        closed = trio.Event()

        async def close() -> None:
            await topics.close_bundle(bundle)
            closed.set()

        nursery.start_soon(close)
        await trio.testing.wait_all_tasks_blocked()
        assert not closed.is_set()
        logs.gate.set()
        await closed.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert found == [ServerError.ServiceNotReady]
        assert topics.topics == {}


async def test_the_topics_of_a_bundle_are_closed() -> None:
    async with loader() as (topics, logs):
        logs.gate.set()
        names = [TopicName.parse(f"t{number}") for number in range(40)]
        for name in names:
            await topics.get(name, create=True)
        gate = gate_of(topics)
        bundle = await gate.admit(names[0])
        inside = [str(name) for name in names if await gate.admit(name) == bundle]
        assert sorted(topics.loaded_of(bundle)) == sorted(inside)
        await topics.fence_bundle(bundle)
        assert {key for key, topic in topics.topics.items() if topic.fenced} == set(inside)
        await topics.close_bundle(bundle)
        assert set(topics.topics) == {str(name) for name in names} - set(inside)
        assert topics.loaded_of(bundle) == []


def noting(turns: Turned, call: Callable[P, R]) -> Callable[P, R]:
    """The same, noted in the turn in which it is called."""

    def noted(*args: P.args, **more: P.kwargs) -> R:
        turns.note()
        return call(*args, **more)

    return noted


async def test_many_loads_begin_and_go_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 8 * LOADS_A_TURN
    async with loader() as (topics, logs), trio.open_nursery() as nursery:
        with turned() as begun, turned() as opened:
            monkeypatch.setattr(SlowLogs, "open", noting(begun, SlowLogs.open))
            made = noting(opened, loading.PersistentTopic)
            monkeypatch.setattr(loading, "PersistentTopic", made)
            found: list[object] = []
            for number in range(many):
                name = TopicName.parse(f"a{number}")
                nursery.start_soon(get_into, topics, name, found, True)
            await trio.testing.wait_all_tasks_blocked()
            # All wait for the storage at the same time: that is not bounded.
            assert len(logs.opened) == many
            logs.gate.set()
            await trio.testing.wait_all_tasks_blocked()
        assert len(found) == len(topics.topics) == many
        for turns in (begun, opened):
            assert sum(turns.noted.values()) == many
            assert max(turns.noted.values()) <= LOADS_A_TURN
