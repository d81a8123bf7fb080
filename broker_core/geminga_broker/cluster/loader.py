"""Load and unload topics: single-flight, bounded, with deadlines (BR-01)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial

import trio

from geminga_broker.cluster.bundle_index import BundleIndex
from geminga_broker.cluster.catalog import TopicCatalog, is_policies_topic
from geminga_broker.cluster.ending import Endings, close_topic, log_fenced
from geminga_broker.cluster.load_needs import LOADS_A_TURN, Gate, Logs
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.policy_applier import PolicyApplier
from geminga_broker.config import MIB, BrokerConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogNotFound
from geminga_broker.log.options import Retention
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.metrics.counts import LoadCounts
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.policies.apply import apply_common_policies, apply_policies, broker_limits
from geminga_broker.policies.resolve import PolicyResolver
from geminga_broker.topic.api import TopicEnvironment
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.nonpersistent import NonPersistentTopic
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import run_guarded
from geminga_runtime.pace import Pace
from geminga_runtime.waiters import Promise, taken

_log = logging.getLogger(__name__)

LOADS_WAITING_MAX = 50_000
"""Topics that may wait to be loaded; each takes some kilobytes."""

FENCES_A_TURN = 512
"""Topics that are fenced while other tasks wait; a few milliseconds."""

UNLOADS_MAX = 64
"""Topics that are closed in parallel when the broker stops."""


class Creation(IntEnum):
    """Whether a missing topic is created. A higher value allows more."""

    NEVER = 0
    AUTOMATIC = 1
    """On first use, by the policy of automatic creation."""
    BY_HAND = 2
    """By an explicit request."""


class _Load(Promise[Topic]):
    """A running load."""

    __slots__ = ("create", "name", "properties")

    def __init__(self, name: TopicName, create: Creation, properties: Mapping[str, str]) -> None:
        super().__init__()
        self.name = name
        self.create = create
        self.properties = properties
        """Of a topic that is made."""


class TopicLoader:
    """Loads and unloads this broker's topics."""

    def __init__(
        self,
        config: BrokerConfig,
        catalog: TopicCatalog,
        namespaces: Namespaces,
        logs: Logs,
        environment: TopicEnvironment,
        policies: PolicyResolver,
        gate: Gate,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.closed = False
        self._config = config
        self._catalog = catalog
        self._namespaces = namespaces
        self._logs = logs
        self._environment = environment
        self._gate = gate
        self._bundles = BundleIndex()
        self.policies = policies
        log = config.log
        self._retention = Retention(log.retention_minutes * 60, log.retention_mb * MIB)
        self.applier = PolicyApplier(self.topics, policies, broker_limits(config.policies))
        """Brings changed policies to the topics."""
        self._loads: dict[str, _Load] = {}
        self.counts = LoadCounts()
        self._turns = trio.CapacityLimiter(config.topics.loads_max)
        self._begun, self._opened = Pace(LOADS_A_TURN), Pace(LOADS_A_TURN)
        self._leaving: dict[str, Promise[None]] = {}
        self.endings = Endings()

    def resize(self, loads_max: int) -> None:
        """So many topics are loaded at once from now on."""
        self._turns.total_tokens = loads_max

    @property
    def loading(self) -> int:
        """The number of running and waiting loads."""
        return len(self._loads)

    async def get(
        self,
        name: TopicName,
        *,
        create: bool,
        by_hand: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """The topic, which is loaded if needed. `create` creates a missing one if automatic
        creation is allowed, `by_hand` always, with these `properties`. Raises BrokerError:
        TopicNotFound, NotAllowedError, TooManyRequests, ServiceNotReady.
        """
        key = str(name)
        wanted = Creation.BY_HAND if by_hand else Creation(create)
        while True:
            if (topic := self.loaded_now(key)) is not None:
                if not topic.fenced:
                    return topic
                await self._leave_fenced(name)
                continue
            if self.closed:
                raise BrokerError(ServerError.ServiceNotReady, "the broker is shutting down")
            leaving = self._leaving.get(key)
            if leaving is not None:
                await leaving.wait()
                continue
            load = self._loads.get(key)
            if load is None:
                load = self._start(name, wanted, properties or {})
            if load.create >= wanted:
                return await load.wait()
            try:
                return await load.wait()
            except BrokerError as error:
                if error.code != ServerError.TopicNotFound:
                    raise

    def loaded_now(self, key: str) -> Topic | None:
        """The topic of this full name, if it is loaded and nothing is about to close it."""
        return None if key in self._leaving else self.topics.get(key)

    async def wait_load(self, name: TopicName) -> None:
        """Until a running load of the topic is over, whatever comes of it."""
        if (load := self._loads.get(str(name))) is not None:
            with suppress(BrokerError):
                await load.wait()

    def _start(self, name: TopicName, create: Creation, properties: Mapping[str, str]) -> _Load:
        if len(self._loads) >= self._config.topics.loads_max + LOADS_WAITING_MAX:
            raise BrokerError(ServerError.TooManyRequests, "too many topics are being loaded")
        load = self._loads[str(name)] = _Load(name, create, properties)
        self._environment.nursery.start_soon(self._run, name, load)
        return load

    async def _run(self, name: TopicName, load: _Load) -> None:
        key, began_s = str(name), trio.current_time()
        try:
            with trio.fail_after(self._config.topics.load_timeout_s):
                topic = await self._load_in_turn(name, load)
        except trio.TooSlowError:
            _log.warning("topic=%s took too long to load", key)
            self._fail(
                key, BrokerError(ServerError.ServiceNotReady, f"loading {key} took too long")
            )
        except Exception as error:
            self._fail(key, error)
        except BaseException:
            text = "the broker is shutting down"
            self._loads.pop(key).reject(BrokerError(ServerError.ServiceNotReady, text))
            raise
        else:
            del self._loads[key]
            self.topics[key] = topic
            self._bundles.add(name)
            self.counts.loaded(key, trio.current_time() - began_s)
            load.resolve(topic)

    def _fail(self, key: str, error: Exception) -> None:
        self.counts.failed(error)
        self._loads.pop(key).reject(error)

    async def _load_in_turn(self, name: TopicName, load: _Load) -> Topic:
        if is_policies_topic(name):  # all others may wait for what these tell
            return await self._load_here(name, load)
        await taken(self._turns)
        try:
            await self._begun.turn()
            return await self._load_here(name, load)
        finally:
            self._turns.release()

    async def _load_here(self, name: TopicName, load: _Load) -> Topic:
        """Load it while the bundle is owned: what is lost meanwhile is closed again."""
        bundle = await self._gate.admit(name)
        tenure = self._gate.tenure(bundle)
        topic = await self._load(name, load)
        # Taken again is not enough: what the load claimed may be another broker's since.
        if tenure is None or self._gate.tenure(bundle) != tenure:
            with self.endings.shielded():
                await topic.close()
            text = f"Namespace bundle {bundle} was unloaded while {name} was loaded"
            raise BrokerError(ServerError.ServiceNotReady, text)
        return topic

    async def _load(self, name: TopicName, load: _Load) -> Topic:
        changes = self.applier.changes
        topic = await self._open(name, load)
        await self.applier.catch_up(name, topic, changes)
        return topic

    async def _open(self, name: TopicName, load: _Load) -> Topic:
        create = load.create
        stored = await self._check(name, create)
        effective = await self.policies.resolve(name)
        if not name.is_persistent:
            passing = NonPersistentTopic(name, self._environment, effective.options)
            apply_common_policies(passing, effective.policies, self.applier.limits_of(name))
            return passing
        key = name.persistence_naming_encoding
        if load.properties and not stored:
            await self._catalog.create_log(name, load.properties)
        try:
            log = await self._logs.open(
                key,
                create=create is not Creation.NEVER or not stored,
                persistence=effective.policies.persistence,
                here=not stored and not load.properties,
            )
        except LogNotFound:  # `open` has finished an interrupted deletion
            raise BrokerError(ServerError.TopicNotFound, f"Topic {name} does not exist") from None
        await self._opened.turn()  # a commit of the metadata store ends the waits of many
        if isinstance(log, TopicLog):
            log.set_persistence(effective.policies.persistence)
            if effective.policies.retention != self._retention:
                # Setting it trims the log, which a load must not do without need.
                log.set_retention(effective.policies.retention)
        topic = PersistentTopic(name, log, self._environment, effective.options)
        await topic.compaction.recover()
        await apply_policies(topic, effective.policies, self.applier.limits_of(name))
        start_soon = self._environment.nursery.start_soon
        topic.on_fenced = partial(start_soon, run_guarded, self._give_up, str(name))
        if isinstance(log, TopicLog):
            log.on_fenced(lambda why: start_soon(run_guarded, log_fenced, topic, why))
        return topic

    async def _give_up(self, key: str) -> None:
        """Another broker took the topic's log: close the topic here."""
        _log.warning("topic=%s was taken by another broker", key)
        if (load := self._loads.get(key)) is not None:
            try:
                await load.wait()
            except BrokerError:
                return
        await self.unload_all([key])

    async def _check(self, name: TopicName, create: Creation) -> bool:
        """Whether the topic is stored. Raises BrokerError unless it is or may be created."""
        topics = self._config.topics
        if not (topics.enable_persistent if name.is_persistent else topics.enable_non_persistent):
            text = f"Broker is unable to load {name.domain} topics"
            raise BrokerError(ServerError.NotAllowedError, text)
        if name.is_persistent and await self._catalog.is_stored(name):
            return True
        if name.is_partition:
            partitions, may_make = await self._catalog.partitions_to_make(name.partitioned_base)
            if name.partition_index < partitions:
                if may_make:
                    return False
                if create:
                    text = f"Topic {name.partitioned_base} is being deleted"
                    raise BrokerError(ServerError.ServiceNotReady, text)
            elif partitions and create is Creation.BY_HAND:
                raise BrokerError(
                    ServerError.NotAllowedError,
                    f"Illegal topic partition name {name} with max allowed {partitions} partitions",
                )
            elif partitions:
                raise BrokerError(ServerError.TopicNotFound, f"Topic {name} does not exist")
        if not create:
            raise BrokerError(ServerError.TopicNotFound, f"Topic {name} does not exist")
        if not await self._namespaces.exists(name.namespace):
            raise BrokerError(ServerError.TopicNotFound, f"Namespace not found {name.namespace}")
        by_hand = create is Creation.BY_HAND
        if not by_hand and await self._catalog.auto_partitions(name) is None:
            text = f"Topic {name} does not exist and auto creation is disabled"
            raise BrokerError(ServerError.TopicNotFound, text)
        if name.is_persistent:
            await self._catalog.check_room(name, 1)
        return False

    async def leave(self, key: str, end: Callable[[Topic], Awaitable[None]]) -> bool:
        """Unregister a loaded topic while `end` closes or deletes it; `get` waits meanwhile.

        Returns False if it isn't loaded. If `end` raises, the topic stays, unless it is fenced:
        then the next `get` loads it again. A cancellation doesn't stop `end`, which may take
        as long as `Endings` say. Raises BrokerError ServiceNotReady if it takes longer.
        """
        while (leaving := self._leaving.get(key)) is not None:
            await leaving.wait()
        topic = self.topics.get(key)
        if topic is None:
            return False
        promise = self._leaving[key] = Promise[None]()
        try:
            with self.endings.shielded() as scope:
                await end(topic)
        except BaseException:
            self._forget_fenced(key, topic)
            raise
        else:
            if scope.cancelled_caught:
                self._forget_fenced(key, topic)
                raise BrokerError(ServerError.ServiceNotReady, f"{key} can't be left in time")
            self._forget(key)
        finally:
            del self._leaving[key]
            promise.resolve(None)
        return True

    async def _leave_fenced(self, name: TopicName) -> None:
        """Whoever fenced it may have been cancelled before it was closed, and the bundle may be
        this broker's again; if not, nobody waits. Raises as `Gate.admit` and `leave` do.
        """
        await self._gate.admit(name)
        try:
            await self.leave(str(name), close_topic)
        except BrokerError:
            raise
        except Exception:
            _log.exception("topic=%s can't be closed", name)  # `leave` has forgotten it

    def _forget_fenced(self, key: str, topic: Topic) -> None:
        if topic.fenced:
            self._forget(key)

    def _forget(self, key: str) -> None:
        del self.topics[key]
        self._bundles.discard(TopicName.parse(key))

    async def close_bundle(self, bundle: BundleId, moving: Moving | None = None) -> None:
        """Close the bundle's topics, which the gate must refuse by now, also those whose loads are
        running. With `moving` their clients are told where they go.
        """
        for key in await bundle.among(self._loads):
            if (load := self._loads.get(key)) is not None:
                with suppress(Exception):
                    await load.wait()  # it fails, as the bundle is no longer held
        await self.unload_all(self.loaded_of(bundle), moving)

    async def fence_bundle(self, bundle: BundleId) -> None:
        """Refuse the clients of the bundle's topics, which the gate must refuse by now, before they
        are closed. Waits for other tasks' turns alone.
        """
        keys = self.loaded_of(bundle)
        for at in range(0, len(keys), FENCES_A_TURN):
            for key in keys[at : at + FENCES_A_TURN]:
                if (topic := self.topics.get(key)) is not None:
                    topic.fence()
            await trio.lowlevel.checkpoint()

    def loaded_of(self, bundle: BundleId) -> list[str]:
        """The loaded topics of a bundle."""
        return self._bundles.of(bundle)

    async def unload_all(
        self, keys: Iterable[str] | None = None, moving: Moving | None = None
    ) -> None:
        """Close topics, several in parallel; logs failures. If cancelled, the rest stays."""
        waiting = iter(list(self.topics) if keys is None else list(keys))

        async def worker() -> None:
            for key in waiting:
                await trio.lowlevel.checkpoint()  # to leave is no point of cancellation
                try:
                    await self.leave(key, partial(close_topic, moving=moving))
                except BrokerError as error:
                    _log.warning("topic=%s is not closed: %s", key, error)
                except Exception:
                    _log.exception("topic=%s can't be closed", key)

        async with trio.open_nursery() as nursery:
            for _ in range(UNLOADS_MAX):
                nursery.start_soon(worker)
