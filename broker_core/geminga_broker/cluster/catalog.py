"""The cluster's topics: partition counts, names in a namespace, rules of automatic
creation (spec BR-09, BR-39).

A persistent topic exists when its managed ledger does (`/managed-
ledgers/{tenant}/{namespace}/persistent/{topic}`); a partitioned one has a record at
`/admin/partitioned-topics/{tenant}/{namespace}/{domain}/{topic}`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import trio
from fastcrc import crc32

from geminga_broker.cluster.deletions import Resumed, is_marked
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject, ResourceExists, ResourceMissing
from geminga_broker.config import TopicConfig
from geminga_broker.errors import AboveLimit, BrokerError
from geminga_broker.limits import PARTITIONS_MAX, check_partitioned
from geminga_protocol.errors import ProtocolError
from geminga_protocol.managed_ledger import encode_ledger_info
from geminga_protocol.pb.managed_ledger_pb2 import ManagedLedgerInfo
from geminga_protocol.pb.pulsar_api_pb2 import CommandGetTopicsOfNamespace, ServerError
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName, url_decode, url_encode
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore, NoNode, NotEmpty

MANAGED_LEDGERS = "/managed-ledgers"
INLINE_NAMES_MAX = 5000
"""More names are sorted in a thread."""
LIST_THREADS_MAX = 2
CLEAN_UP_S = 5.0
Mode = CommandGetTopicsOfNamespace.Mode


class TopicCatalog:
    """The topics in the metadata store."""

    def __init__(self, store: MetadataStore, namespaces: Namespaces, config: TopicConfig) -> None:
        self._store = store
        self._namespaces = namespaces
        self._records = namespaces.partitioned
        self._config = config
        self.list_threads = trio.CapacityLimiter(LIST_THREADS_MAX)
        """For who goes through many names."""

    async def partitions(self, topic: TopicName) -> int:
        """The number of partitions, 0 for a topic that isn't partitioned."""
        return _partitions_in(await self._records.get(_record_name(topic)) or {})

    async def metadata(self, topic: TopicName) -> tuple[int, dict[str, str] | None]:
        """The number of partitions, 0 for a topic that isn't partitioned, and its properties; None
        if it never had any.
        """
        record = await self._records.get(_record_name(topic)) or {}
        found = _properties_in(record) if "properties" in record else None
        return _partitions_in(record), found

    async def partitioned(self, namespace: str, domain: str) -> list[str]:
        """Full names of a namespace's partitioned topics of one domain."""
        names = await self._records.names(f"{namespace}/{domain}")
        return [f"{domain}://{namespace}/{url_decode(name)}" for name in names]

    @property
    def partitions_max(self) -> int:
        """Partitions that a topic may have."""
        return self._config.partitions_max or PARTITIONS_MAX

    async def create_partitioned(
        self, topic: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        """Raises ResourceExists, AboveLimit if the namespace has no room for them, and BrokerError
        NotAllowedError for too many partitions, InvalidTopicName if their names would be too long.
        """
        check_partitioned(topic)
        limit = self.partitions_max
        if partitions > limit:
            text = f"Number of partitions should be less than or equal to {limit}"
            raise BrokerError(ServerError.NotAllowedError, text)
        await self.check_room(topic, partitions)
        record: JsonObject = {"partitions": partitions, "deleted": False}
        if properties:
            record["properties"] = properties
        await self._records.create(_record_name(topic), record)

    async def check_room(self, topic: TopicName, more: int) -> None:
        """Raises AboveLimit unless the topic's namespace may have so many topics more. Those that
        are not persistent aren't counted, as at Apache's broker.
        """
        per_broker = self._config.topics_per_namespace_max
        limit = await self._namespaces.topics_max(topic.namespace, per_broker)
        if not limit or is_system_topic(topic):
            return
        if topic.is_persistent:
            more += len(without_system(await self.persistent(topic.namespace)))
        if more > limit:
            raise AboveLimit("Exceed maximum number of topics in namespace.")

    async def grow_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Never fewer than another call made meanwhile. Raises ResourceMissing, also in
        `being_deleted`, which would not delete the new ones.
        """

        def grown(record: JsonObject) -> JsonObject:
            if is_marked(record):
                raise ResourceMissing(str(topic))
            return record | {"partitions": max(partitions, _partitions_in(record))}

        await self._records.update(_record_name(topic), grown)

    async def delete_partitioned(self, topic: TopicName) -> None:
        """Remove the record in `being_deleted`. Raises ResourceMissing, ResourceChanged."""
        await self._records.delete_where(_record_name(topic), is_marked)

    async def create_partitions(self, topic: TopicName, indexes: Iterable[int]) -> None:
        """Make partitions of a persistent topic that nobody has loaded yet: an empty node, as
        Apache's `TopicResources.createPersistentTopicAsync` makes it, is a log without ledgers.
        None of a topic that is deleted meanwhile stays: what its deletion has passed goes again.
        """
        made: dict[int, str] = {}
        try:
            for index in indexes:
                name = topic.partition(index).persistence_naming_encoding
                made[index] = path = f"{MANAGED_LEDGERS}/{name}"  # also if the write is cancelled
                try:
                    await self._store.put(path, b"", MUST_NOT_EXIST)
                except BadVersion:
                    del made[index]
            await self._remove_unwanted(topic, made)
        except BaseException:
            with trio.move_on_after(CLEAN_UP_S, shield=True):
                await self._remove_unwanted(topic, made)
            raise

    async def _remove_unwanted(self, topic: TopicName, made: Mapping[int, str]) -> None:
        count, are_kept = await self.partitions_to_make(topic)
        for index, path in made.items():
            if are_kept and index < count:
                continue
            node = await self._store.get(path)
            if node is not None and not node.value:  # nobody has loaded it
                with suppress(NoNode, BadVersion, NotEmpty):
                    await self._store.delete(path, node.stat.version)

    async def create_log(self, topic: TopicName, properties: Mapping[str, str]) -> None:
        """Make a persistent topic with properties, as `create_partitions` makes partitions."""
        info = ManagedLedgerInfo()
        for key, value in sorted(properties.items()):
            info.properties.add(key=key, value=value)
        path = f"{MANAGED_LEDGERS}/{topic.persistence_naming_encoding}"
        with suppress(BadVersion):
            await self._store.put(path, encode_ledger_info(info), MUST_NOT_EXIST)

    @asynccontextmanager
    async def being_deleted(
        self, topic: TopicName, *, force: bool = False, resumed: Resumed | None = None
    ) -> AsyncIterator[int]:
        """In the block no broker makes a missing partition of the topic; its number of partitions.
        A mark in the topic's record says so. Raises as `Deletions.marked`.
        """
        marked = self._namespaces.deletions.marked(
            self._records, _record_name(topic), str(topic), force=force, resumed=resumed
        )
        async with marked as record:
            yield _partitions_in(record)

    async def check_being_deleted(self, topic: TopicName) -> None:
        """See `Deletions.check`."""
        await self._namespaces.deletions.check(self._records, _record_name(topic))

    async def partitions_to_make(self, topic: TopicName) -> tuple[int, bool]:
        """The number of partitions, and whether missing ones may be made: not in `being_deleted`,
        at any broker.
        """
        record = await self._records.get(_record_name(topic)) or {}
        return _partitions_in(record), not is_marked(record)

    async def change_properties(
        self, topic: TopicName, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Replace the properties of a partitioned topic by those that `change` makes of them.
        Raises ResourceMissing, and what `change` raises.
        """

        def changed(record: JsonObject) -> JsonObject:
            return record | {"properties": dict(change(_properties_in(record)))}

        await self._records.update(_record_name(topic), changed)

    async def is_stored(self, topic: TopicName) -> bool:
        """Whether a persistent topic of exactly this name has a managed ledger."""
        return await self._store.exists(f"{MANAGED_LEDGERS}/{topic.persistence_naming_encoding}")

    async def is_there_or_made(self, topic: TopicName) -> bool:
        """Whether there is the topic, or a client's use makes it; one that isn't persistent counts
        as there.
        """
        if not topic.is_persistent or await self.is_stored(topic):
            return True
        count = await self.partitions(topic.partitioned_base if topic.is_partition else topic)
        if count:
            return topic.partition_index < count
        return await self.auto_partitions(topic) is not None

    async def persistent(self, namespace: str) -> list[str]:
        """Sorted full names of a namespace's stored topics, with all partitions."""
        path = f"{MANAGED_LEDGERS}/{namespace}/persistent"
        names = await self._store.children(path)

        def found() -> list[str]:
            return sorted(f"persistent://{namespace}/{url_decode(name)}" for name in names)

        # The loop must not wait for a hundred thousand names.
        return await trio.to_thread.run_sync(found) if len(names) > INLINE_NAMES_MAX else found()

    async def auto_partitions(self, topic: TopicName) -> int | None:
        """The partitions of an automatically created topic: 0 for none, None if that is off."""
        config = self._config
        allowed: object = config.allow_auto_creation
        kind: object = config.auto_creation_type
        count: object = config.default_partitions
        override = await self._namespaces.auto_creation(topic.namespace)
        if override is not None:
            allowed = override.get("allowAutoTopicCreation", allowed)
            kind = override.get("topicType", kind)
            count = override.get("defaultNumPartitions", count)
        if is_system_topic(topic) and config.system_topics:
            allowed = True
        if not allowed or topic.local_name.endswith("__transaction_pending_ack"):
            return None
        if kind == "partitioned" and not topic.is_partition:
            return count if isinstance(count, int) and count > 0 else 1
        return 0

    async def resolve_partitions(self, topic: TopicName, *, create: bool, exists: bool) -> int:
        """The partition count for PARTITIONED_METADATA; creates the topic's record by policy.

        `exists`: there is a topic of this name without partitions. Raises BrokerError TopicNotFound
        if client (PIP-344) or policy forbid to create it. A deleted partition doesn't exist,
        whatever its topic's number of partitions.
        """
        if not exists and not await self._namespaces.exists(topic.namespace):
            raise BrokerError(ServerError.TopicNotFound, f"Namespace not found {topic.namespace}")
        if topic.is_partition:
            if not exists and not (create and await self._may_be_partition(topic)):
                raise BrokerError(ServerError.TopicNotFound, f"Topic {topic} not found")
            return 0
        count = await self.partitions(topic)
        if count or exists:
            return count
        if not create:
            raise BrokerError(ServerError.TopicNotFound, f"Topic {topic} not found")
        wanted = await self.auto_partitions(topic)
        if wanted is None:
            raise BrokerError(ServerError.TopicNotFound, f"Topic {topic} not found")
        if wanted:
            try:
                await self.create_partitioned(topic, wanted)
            except ResourceExists:
                return await self.partitions(topic)
        return wanted

    async def _may_be_partition(self, topic: TopicName) -> bool:
        """Whether the name is none behind the last partition of a topic."""
        count = await self.partitions(topic.partitioned_base)
        return not count or topic.partition_index < count


def _partitions_in(record: JsonObject) -> int:
    count = record.get("partitions")
    return count if isinstance(count, int) else 0


def _properties_in(record: JsonObject) -> dict[str, str]:
    found = record.get("properties")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _record_name(topic: TopicName) -> str:
    return f"{topic.namespace}/{topic.domain}/{url_encode(topic.local_name)}"


def by_mode(names: Iterable[str], mode: int) -> list[str]:
    """The names of the domain in GET_TOPICS_OF_NAMESPACE."""
    if mode == Mode.ALL:
        return list(names)
    scheme = "persistent://" if mode == Mode.PERSISTENT else "non-persistent://"
    return [name for name in names if name.startswith(scheme)]


POLICIES_TOPIC = "__change_events"
"""The local name of the topic that holds the policies of a namespace's topics."""

_SYSTEM_NAMES = (POLICIES_TOPIC, "__transaction_buffer_snapshot", "__transaction_pending_ack")


def without_system(names: Iterable[str]) -> list[str]:
    """The names without the broker's own topics (`TopicList.filterSystemTopic`)."""
    return [
        name
        for name in names
        # Most names are settled by two underscores that they don't have.
        if "__" not in name
        or not any(
            part in name.rpartition("/")[2].partition("-partition-")[0] for part in _SYSTEM_NAMES
        )
    ]


def is_system_topic(topic: TopicName) -> bool:
    """Whether it is one of the broker's own topics."""
    text = str(topic)
    return "__" in text and not without_system([text])


def is_policies_topic(topic: TopicName) -> bool:
    """Whether it is the topic of policies, or a partition of it
    (`SystemTopicNames.isTopicPoliciesSystemTopic`).
    """
    name = topic.local_name
    return name.startswith(POLICIES_TOPIC) and (
        topic.partitioned_base.local_name == POLICIES_TOPIC and topic.is_persistent
    )


PATTERN_BYTES_MAX = 1 << 20
"""Bound of a pattern's memory."""


class TopicPattern(Protocol):
    """The part of an RE2 pattern that is used here."""

    def fullmatch(self, text: str) -> object | None:
        """A match of the whole text, or None."""


def compile_pattern(pattern: str) -> TopicPattern | None:
    """A client's topic pattern, to be matched against names without their domain.

    None for a pattern that RE2 can't compile, or that is too large: the client filters then. As in
    Apache, RE2 is used: its time grows with a name's length only, whatever the pattern.
    """
    import re2  # only needed for subscriptions by pattern

    prefix, separator, rest = pattern.partition("://")
    text = ("^" if "^" in prefix else "") + rest if separator else pattern
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        compiled: TopicPattern = re2.compile(text, options)
    except re2.error:
        return None
    return compiled


_PARTITION_SUFFIX = re.compile(rf"{PARTITION_SUFFIX}(0|[1-9][0-9]*)\Z")


def matching(names: Iterable[str], pattern: TopicPattern) -> list[str]:
    """Names that match without domain and partition (TopicList.filterTopics)."""
    return [
        name
        for name in names
        if pattern.fullmatch(_PARTITION_SUFFIX.sub("", name.partition("://")[2], count=1))
    ]


def list_hash(names: Iterable[str]) -> str:
    """Hash of a topic list (`TopicList.calculateHash`): CRC32C of the sorted names."""
    return crc32.iscsi(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


def topic_of_ledger_path(path: str) -> str | None:
    """The full name of the topic whose managed ledger has this store path, None for other paths."""
    parts = path.removeprefix(f"{MANAGED_LEDGERS}/").split("/")
    if len(parts) != 4 or parts[2] != "persistent":
        return None
    try:
        return str(TopicName.from_persistence_naming_encoding("/".join(parts)))
    except ProtocolError:
        return None
