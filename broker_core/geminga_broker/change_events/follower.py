"""Follows the events of one namespace (Apache's SystemTopicBasedTopicPoliciesService).

A namespace whose topics have no policies has no `__change_events` either, and reading makes none:
the metadata store tells when there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from geminga_broker.change_events.api import (
    EventReader,
    Events,
    EventsUnavailable,
    EventWriter,
    Told,
    UnfitPolicy,
)
from geminga_broker.change_events.codec import encode, is_read, key_of, out_of_range
from geminga_broker.change_events.older_records import OlderRecords
from geminga_broker.change_events.policies import Policies
from geminga_broker.cluster.catalog import MANAGED_LEDGERS, POLICIES_TOPIC
from geminga_broker.cluster.records import JsonObject
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import Change, MetadataError, MetadataStore, Notification
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_MAX_S = 60.0
"""The topic is read again after the first, then twice as late each time."""

APPLIED_AT_ONCE = 200
"""Events that are applied in one turn of the loop."""

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all namespaces have in common."""

    store: MetadataStore
    exists: Callable[[TopicName], Awaitable[bool]]
    """Whether the topic is there, with or without partitions."""
    events: Callable[[], Events]
    """Raises EventsUnavailable while the broker doesn't serve."""
    older: OlderRecords
    changed: Callable[[set[str]], None]
    """Is told the full names of topics whose policies have changed."""
    cluster: str


class Follower:
    """The policies of one namespace's topics, from when `ready` returns."""

    def __init__(self, namespace: str, around: Surroundings) -> None:
        self.namespace = namespace
        self.topic = TopicName.parse(f"persistent://{namespace}/{POLICIES_TOPIC}")
        self.policies = Policies()
        self.writing = trio.Lock()
        """Held from when policies are read until what they are changed to is applied."""
        self.scope = trio.CancelScope()
        self._around = around
        self._ready: Promise[None] | None = Promise()
        self._applied: dict[int, Position] = {}
        """The last message of each partition."""
        self._progress = trio.Event()
        self._came = trio.Event()
        self._reading = trio.CancelScope()

    @property
    def is_ready(self) -> bool:
        """Whether the policies are known."""
        return self._ready is None

    async def ready(self) -> None:
        """Until the policies are known. Raises EventsUnavailable, MetadataError."""
        if self._ready is not None:
            await self._ready.wait()

    async def run(self) -> None:
        """Follow until `scope` is cancelled, or the policies can't be found out: `ready` raises the
        reason then.
        """
        try:
            with self.scope:
                await self._run()
            self._fail(EventsUnavailable(f"the policies of {self.namespace} are not followed"))
        except (EventsUnavailable, MetadataError) as error:
            _log.warning("namespace=%s policies of topics not read: %s", self.namespace, error)
            self._fail(error)
        except BaseException as error:
            self._fail(EventsUnavailable(f"{self.topic} was not read: {error!r}"))
            raise

    def _fail(self, error: Exception) -> None:
        if self._ready is not None:
            self._ready.reject(error)

    async def _run(self) -> None:
        """Raises EventsUnavailable and MetadataError as long as the policies aren't known."""
        path = f"{MANAGED_LEDGERS}/{self.topic.persistence_naming_encoding}"
        failure: EventsUnavailable | MetadataError | None = None
        async with self._around.store.watch(path) as told, trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, path, told)
            failure = await self._follow_on()
            nursery.cancel_scope.cancel()
        raise failure

    async def _follow_on(self) -> EventsUnavailable | MetadataError:
        """Follow, again after failures. Returns the reason if the policies can't be found out."""
        retry_s = RETRY_S
        while True:
            self._came = trio.Event()
            before = self.policies
            try:
                await self._follow()
            except (EventsUnavailable, MetadataError) as error:
                if self._ready is not None:
                    return error
                retry_s = RETRY_S if self.policies is not before else retry_s
                _log.warning(
                    "namespace=%s policies of topics not followed, again in %.0f s: %s",
                    *(self.namespace, retry_s, error),
                )
                await trio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)

    async def _listen(self, path: str, told: trio.MemoryReceiveChannel[Notification]) -> None:
        async for each in told:
            if each.kind is Change.LOST or each.path == path:
                self.came()
                if each.kind in (Change.DELETED, Change.LOST):
                    self.went()

    def came(self) -> None:
        """The topic may be there from now on."""
        self._came.set()

    def went(self) -> None:
        """The topic may be another one from now on."""
        self._reading.cancel()

    async def _follow(self) -> None:
        """Read the topic until it is gone, or else wait until there is one."""
        around = self._around
        older = await around.older.exist(self.namespace)
        if older or await around.exists(self.topic):
            with trio.CancelScope() as self._reading:
                await self._read(older=older)
        if not await around.exists(self.topic):
            self._begin(Policies(), {})
            await self._came.wait()

    async def _read(self, *, older: bool) -> None:
        found, applied = Policies(), dict[int, Position]()
        async with self._around.events().reading(self.topic, create=older) as reader:
            await _to_end(reader, found, applied)
            if older:
                await self._take_over(reader, found, applied)
            self._begin(found, applied)
            while True:
                await self._apply(await reader.read())

    def _begin(self, found: Policies, applied: dict[int, Position]) -> None:
        """What was found is what is known from now on."""
        changed = self.policies.differing(found)
        self.policies, self._applied = found, applied
        self._note_progress(changed)
        if self._ready is not None:
            ready, self._ready = self._ready, None
            ready.resolve(None)

    async def _apply(self, told: list[Told]) -> None:
        for begin in range(0, len(told), APPLIED_AT_ONCE):
            part = told[begin : begin + APPLIED_AT_ONCE]
            _apply(part, self.policies, self._applied)
            self._note_progress({each.event.topic for each in part if each.event is not None})
            await trio.lowlevel.checkpoint()

    def _note_progress(self, changed: set[str]) -> None:
        self._progress.set()
        self._progress = trio.Event()
        if changed:
            self._around.changed(changed)

    async def applied(self, message_id: MessageId) -> None:
        """Until a message that was published is among the policies."""
        wanted = message_id.ledger_id, message_id.entry_id
        while self._applied.get(max(message_id.partition, 0), (-1, -1)) < wanted:
            await self._progress.wait()

    async def publish(
        self, topic: TopicName, record: JsonObject | None, *, is_global: bool
    ) -> MessageId:
        """Write a topic's policies, None to delete them. Raises EventsUnavailable, UnfitPolicy."""
        async with self._around.events().writing(self.topic) as writer:
            return await self._write(writer, topic, record, is_global=is_global)

    async def _write(
        self, writer: EventWriter, topic: TopicName, record: JsonObject | None, *, is_global: bool
    ) -> MessageId:
        cluster = self._around.cluster
        payload = None
        if record is not None:
            payload = encode(topic, record, is_global=is_global, cluster=cluster)
            if not is_read(payload):
                raise UnfitPolicy(f"the policies of {topic} take {len(payload)} bytes: too many")
        key = key_of(topic, is_global=is_global)
        return await writer.publish(key, payload, cluster=None if is_global else cluster)

    async def _take_over(
        self, reader: EventReader, found: Policies, applied: dict[int, Position]
    ) -> None:
        """Write what an older version kept, unless it is written already: this may have been
        interrupted before, at any step, or another broker does the same.
        """
        older = self._around.older
        # Who stood still meanwhile is not heard any more: what it would write may be outdated.
        writing = self._around.events().writing(self.topic, alone=True)
        async with older.claimed(self.namespace), writing as writer:
            await _to_end(reader, found, applied)
            records = await older.of(self.namespace)
            taken = 0
            for each in records:
                topic = each.topic
                if topic is None or not each.record:
                    continue
                if (newer := found.of(str(topic), is_global=False)) is None:
                    self._warn_of_cuts(topic, each.record)
                    await self._write(writer, topic, each.record, is_global=False)
                    taken += 1
                elif newer != each.record:
                    _log.warning("topic=%s keeps its policies: an older record is dropped", topic)
            await _to_end(reader, found, applied)
            await older.forget(self.namespace, records)
        if taken:
            _log.info("namespace=%s policies of %d topics taken over", self.namespace, taken)

    def _warn_of_cuts(self, topic: TopicName, record: JsonObject) -> None:
        if (cut := out_of_range(record)) is not None:
            _log.warning("topic=%s policy %s is taken over as the largest possible", topic, cut)


async def _to_end(reader: EventReader, found: Policies, applied: dict[int, Position]) -> None:
    while not await reader.at_end():
        told = await reader.read()
        for begin in range(0, len(told), APPLIED_AT_ONCE):
            _apply(told[begin : begin + APPLIED_AT_ONCE], found, applied)
            await trio.lowlevel.checkpoint()


def _apply(told: list[Told], policies: Policies, applied: dict[int, Position]) -> None:
    for message_id, event in told:
        applied[max(message_id.partition, 0)] = message_id.ledger_id, message_id.entry_id
        if event is not None:
            policies.apply(event)
