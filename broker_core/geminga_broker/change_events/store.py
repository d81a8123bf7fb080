"""Policies of topics in the system topics of their namespaces (spec BR-60, BR-61; decision 39;
Apache's SystemTopicBasedTopicPoliciesService).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio

from geminga_broker.change_events.api import Events, EventsUnavailable, UnfitPolicy
from geminga_broker.change_events.codec import out_of_range
from geminga_broker.change_events.follower import Follower, Surroundings
from geminga_broker.change_events.older_records import OlderRecords
from geminga_broker.cluster.catalog import POLICIES_TOPIC, TopicCatalog, is_policies_topic
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject
from geminga_broker.policies.resolve import Change as ChangeRecord
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import Change, MetadataError, MetadataStore

_log = logging.getLogger(__name__)

WRITE_S = 30.0
"""A change is written and read again within this time (the time-out of Apache's client)."""

_NAMESPACES = "/admin/policies"
_PARTITIONED = "/admin/partitioned-topics"
_SUFFIX = f"/persistent/{POLICIES_TOPIC}"


class SystemTopicPolicies:
    """See `TopicPoliciesStore`; `reach_system_topics` completes it."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        catalog: TopicCatalog,
        cluster: str,
        nursery: trio.Nursery,
    ) -> None:
        self.open_events: Callable[[trio.Nursery], Events] | None = None
        """Reaches the topics; None until the broker serves."""
        self.nursery = nursery
        """Of the broker's tasks."""
        self.changed: Callable[[set[str]], None] = lambda topics: None
        """Is told the full names of topics whose policies have changed."""
        self._store = store
        self._namespaces = namespaces
        self._catalog = catalog
        self._events: Events | None = None
        self._followers: dict[str, Follower] = {}
        self._around = Surroundings(
            store,
            self._exists,
            self._reach,
            OlderRecords(store),
            lambda topics: self.changed(topics),
            cluster,
        )

    async def get(self, topic: TopicName) -> JsonObject:
        """See `TopicPoliciesStore.get`. Raises EventsUnavailable, MetadataError."""
        follower = await self._follower_of(topic)
        if follower is None or not follower.policies:
            return {}
        return follower.policies.merged(str(topic.partitioned_base))

    async def at(self, topic: TopicName, *, is_global: bool) -> JsonObject:
        """See `TopicPoliciesStore.at`."""
        follower = await self._follower_of(topic)
        if follower is None:
            return {}
        return follower.policies.of(str(topic.partitioned_base), is_global=is_global) or {}

    async def update(
        self, topic: TopicName, change: ChangeRecord, *, is_global: bool = False
    ) -> None:
        """See `TopicPoliciesStore.update`. Raises UnfitPolicy; EventsUnavailable: it may be
        changed, too.
        """
        base = topic.partitioned_base
        follower = await self._follower_of(base)
        if follower is None:
            raise UnfitPolicy(f"{topic} has no policies of its own")
        with _in_time(base):
            async with follower.writing:
                old = follower.policies.of(str(base), is_global=is_global)
                record = change(dict(old or {}))
                if (wrong := out_of_range(record)) is not None:
                    raise UnfitPolicy(f"{wrong} is out of range")
                if record != (old or {}):
                    await self._write(follower, base, record, is_global=is_global)

    async def delete(self, topic: TopicName) -> None:
        """See `TopicPoliciesStore.delete`. Raises EventsUnavailable."""
        base = topic.partitioned_base
        follower = await self._follower_of(base)
        if follower is None or not follower.policies:
            return
        if not await self._namespaces.exists(base.namespace):
            return  # it is being deleted, its system topic as the last one
        with _in_time(base):
            async with follower.writing:
                for is_global in (False, True):
                    if follower.policies.of(str(base), is_global=is_global) is not None:
                        await self._write(follower, base, None, is_global=is_global)

    async def _write(
        self, follower: Follower, base: TopicName, record: JsonObject | None, *, is_global: bool
    ) -> None:
        message_id = await follower.publish(base, record, is_global=is_global)
        follower.came()
        await follower.applied(message_id)

    async def _follower_of(self, topic: TopicName) -> Follower | None:
        """The follower of a topic's namespace, once it knows the policies; None where topics have
        no policies.
        """
        follower = self._followers.get(topic.namespace)
        if follower is not None and follower.is_ready:
            return None if is_policies_topic(topic) else follower
        if is_policies_topic(topic):
            return None  # they would be needed to find them out
        if follower is None:
            if not await self._namespaces.exists(topic.namespace):
                return None
            follower = self._followers.get(topic.namespace) or self._start(topic.namespace)
        await follower.ready()
        return follower

    def _start(self, namespace: str) -> Follower:
        follower = self._followers[namespace] = Follower(namespace, self._around)
        self.nursery.start_soon(self._run, follower)
        return follower

    async def _run(self, follower: Follower) -> None:
        try:
            await follower.run()
        except Exception:
            _log.exception("defect: policies of %s are not followed", follower.namespace)
        finally:
            if self._followers.get(follower.namespace) is follower:
                del self._followers[follower.namespace]

    def _reach(self) -> Events:
        if self._events is None:
            if self.open_events is None:
                raise EventsUnavailable("the broker doesn't serve yet")
            self._events = self.open_events(self.nursery)
        return self._events

    async def _exists(self, topic: TopicName) -> bool:
        return await self._catalog.is_stored(topic) or await self._catalog.partitions(topic) > 0

    async def run(self) -> None:
        """Hear of system topics with partitions and of deleted namespaces, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear_of_partitions)
            nursery.start_soon(self._hear_of_namespaces)

    async def _hear_of_namespaces(self) -> None:
        """Who made and deleted namespaces without end would leave a follower for each."""
        async with self._store.watch(_NAMESPACES) as told:
            async for each in told:
                if each.kind is Change.LOST:
                    for namespace in list(self._followers):
                        with suppress(MetadataError):
                            if not await self._namespaces.exists(namespace):
                                self._forget(namespace)
                elif each.kind is Change.DELETED:
                    self._forget(each.path.removeprefix(f"{_NAMESPACES}/"))

    def _forget(self, namespace: str) -> None:
        if (follower := self._followers.pop(namespace, None)) is not None:
            follower.scope.cancel()

    async def _hear_of_partitions(self) -> None:
        async with self._store.watch(_PARTITIONED) as told:
            async for each in told:
                name = each.path.removeprefix(f"{_PARTITIONED}/")
                for namespace, follower in list(self._followers.items()):
                    if each.kind is Change.LOST or name == namespace + _SUFFIX:
                        follower.came()
                        if each.kind in (Change.DELETED, Change.LOST):
                            follower.went()

    def stop(self) -> None:
        """Follow nothing more: the broker stops."""
        self.open_events = None
        for follower in self._followers.values():
            follower.scope.cancel()


@contextmanager
def _in_time(topic: TopicName) -> Iterator[None]:
    try:
        with trio.fail_after(WRITE_S):
            yield
    except trio.TooSlowError:
        raise EventsUnavailable(
            f"policies of {topic} were not written within {WRITE_S} s"
        ) from None
