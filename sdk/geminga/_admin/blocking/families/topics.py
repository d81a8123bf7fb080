"""`geminga._admin.families/topics` of the blocking face.

Made by tools/faces.py: don't edit.
"""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from geminga._admin import declared as rest

if TYPE_CHECKING:
    from geminga._admin.model.base import Json, Names
    from geminga._admin.model.cluster import AuthAction, LookupData
    from geminga._admin.model.stats import (
        LongRunningProcessStatus,
        OffloadProcessStatus,
        PartitionedTopicInternalStats,
        PartitionedTopicMetadata,
        PartitionedTopicStats,
        PersistentTopicInternalStats,
        Position,
        TopicStats,
    )
    from geminga._admin.model.topics import ResetCursorData, TopicDomain

_TOPIC = "/admin/v2/{topic}"
_LOOKUP = "/lookup/v2/topic/{topic}"
_PERMISSION = f"{_TOPIC}/permissions/{{role}}"
_PARTITIONS_TYPE = "application/vnd.partitioned-topic-metadata+json"


def _new_partitions(values: dict[str, object]) -> tuple[object, str]:
    """The body that creates a partitioned topic: the number, or an object with properties too."""
    partitions, properties = values.pop("partitions"), values.pop("properties")
    if properties is None:
        return partitions, "application/json"
    return {"partitions": partitions, "properties": properties}, _PARTITIONS_TYPE


class Topics(rest.BlockingFamily):
    """Topics by their names: `topic`, `tenant/namespace/topic`, or with `persistent://` or
    `non-persistent://` before them. A partition is a topic, too.
    """

    @rest.get("/admin/v2/{domain}/{namespace}")
    def list(
        self,
        namespace: str,
        *,
        domain: TopicDomain = "persistent",
        bundle: str | None = None,
        include_system_topic: bool = False,
    ) -> Names:
        """The topics of a namespace; each partition is one."""

    @rest.get("/admin/v2/{domain}/{namespace}/partitioned")
    def list_partitioned(
        self,
        namespace: str,
        *,
        domain: TopicDomain = "persistent",
        include_system_topic: bool = False,
    ) -> Names:
        """The partitioned topics of a namespace, each once."""

    @rest.put(_TOPIC, body="properties")
    def create(self, topic: str, *, properties: Mapping[str, str] | None = None) -> None:
        """Create a topic without partitions."""

    @rest.put(f"{_TOPIC}/partitions", body=_new_partitions)
    def create_partitioned(
        self,
        topic: str,
        partitions: int,
        *,
        properties: Mapping[str, str] | None = None,
        create_local_topic_only: bool = False,
    ) -> None:
        """Create a topic with partitions."""

    @rest.get(f"{_TOPIC}/partitions")
    def get_partitions(
        self, topic: str, *, check_allow_auto_creation: bool = False
    ) -> PartitionedTopicMetadata:
        """The number of partitions; 0 for a topic without. It may be created on the way."""

    @rest.post(
        f"{_TOPIC}/partitions", body="partitions", query={"local_only": "updateLocalTopicOnly"}
    )
    def update_partitions(
        self, topic: str, partitions: int, *, local_only: bool = False, force: bool = False
    ) -> None:
        """Give a partitioned topic more partitions."""

    @rest.post(f"{_TOPIC}/createMissedPartitions")
    def create_missed_partitions(self, topic: str) -> None:
        """Create the partitions of a partitioned topic that are missing."""

    @rest.delete(_TOPIC)
    def delete(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic that nobody uses; with `force` its clients are sent away."""

    @rest.delete(f"{_TOPIC}/partitions")
    def delete_partitioned(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic with all its partitions."""

    @rest.get(f"{_TOPIC}/properties")
    def get_properties(self, topic: str) -> dict[str, str] | None:
        """All properties."""

    @rest.put(f"{_TOPIC}/properties", body="properties")
    def update_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Add properties to those that are there."""

    @rest.delete(f"{_TOPIC}/properties")
    def remove_property(self, topic: str, key: str) -> None:
        """Remove a property."""

    @rest.get(f"{_TOPIC}/permissions")
    def permissions(self, topic: str) -> dict[str, Names]:
        """What roles may do with the topic, by its own permissions and the namespace's."""

    @rest.post(_PERMISSION, body="actions")
    def grant_permission(self, topic: str, role: str, actions: Sequence[AuthAction]) -> None:
        """Replace what a role may do with the topic."""

    @rest.delete(_PERMISSION)
    def revoke_permissions(self, topic: str, role: str) -> None:
        """Take the topic's own permissions from a role."""

    @rest.put(f"{_TOPIC}/unload")
    def unload(self, topic: str) -> None:
        """Close a topic; the broker loads it again when it is used."""

    @rest.post(f"{_TOPIC}/terminate")
    def terminate(self, topic: str) -> Position:
        """Let nothing more be published; returns the last message's place."""

    @rest.post(f"{_TOPIC}/terminate/partitions")
    def terminate_partitioned(self, topic: str) -> dict[str, Position]:
        """The same with all partitions, by their numbers."""

    @rest.delete(f"{_TOPIC}/truncate")
    def truncate(self, topic: str) -> None:
        """Delete all messages."""

    @rest.post(f"{_TOPIC}/trim")
    def trim(self, topic: str) -> None:
        """Delete the ledgers that neither subscriptions nor retention need, now."""

    @rest.put(f"{_TOPIC}/compaction")
    def compact(self, topic: str) -> None:
        """Begin to compact a topic."""

    @rest.get(f"{_TOPIC}/compaction")
    def compaction_status(self, topic: str) -> LongRunningProcessStatus:
        """How the last compaction went, or goes."""

    @rest.put(f"{_TOPIC}/offload", body="position")
    def offload(self, topic: str, position: ResetCursorData) -> None:
        """Begin to move ledgers before a place out of BookKeeper."""

    @rest.get(f"{_TOPIC}/offload")
    def offload_status(self, topic: str) -> OffloadProcessStatus:
        """How the last offload went, or goes."""


class Lookups(rest.BlockingFamily):
    """Where topics are."""

    @rest.get(_LOOKUP)
    def broker(self, topic: str, *, listener_name: str | None = None) -> LookupData:
        """The broker that serves the topic; one is chosen if there is none."""

    @rest.get(f"{_LOOKUP}/bundle")
    def bundle(self, topic: str) -> str:
        """The bundle that the topic belongs to."""


class Stats(rest.BlockingFamily):
    """What topics measure, and how they are stored."""

    @rest.get(f"{_TOPIC}/stats")
    def get(
        self,
        topic: str,
        *,
        get_precise_backlog: bool = False,
        subscription_backlog_size: bool = True,
        get_earliest_time_in_backlog: bool = False,
        exclude_publishers: bool = False,
        exclude_consumers: bool = False,
    ) -> TopicStats:
        """Rates, backlogs, producers, subscriptions and consumers of a topic. A precise backlog
        counts messages instead of entries; the time of its earliest message is read from bookies.
        """

    @rest.get(f"{_TOPIC}/partitioned-stats")
    def get_partitioned(
        self,
        topic: str,
        *,
        per_partition: bool = True,
        get_precise_backlog: bool = False,
        subscription_backlog_size: bool = True,
        get_earliest_time_in_backlog: bool = False,
        exclude_publishers: bool = False,
        exclude_consumers: bool = False,
    ) -> PartitionedTopicStats:
        """The same of all partitions together and, if asked for, of each."""

    @rest.get(f"{_TOPIC}/internalStats")
    def get_internal(self, topic: str, *, metadata: bool = False) -> PersistentTopicInternalStats:
        """Ledgers and cursors; `metadata` adds what BookKeeper knows of each ledger."""

    @rest.get(f"{_TOPIC}/partitioned-internalStats")
    def get_partitioned_internal(self, topic: str) -> PartitionedTopicInternalStats:
        """Ledgers and cursors of each partition."""

    @rest.get(f"{_TOPIC}/internal-info")
    def get_internal_info(self, topic: str) -> Json:
        """The managed ledger as it stands in the metadata store."""

    @rest.get(f"{_TOPIC}/lastMessageId")
    def last_message_id(self, topic: str) -> Position:
        """The place of the last message."""

    @rest.put(f"{_TOPIC}/backlogSize", body="position")
    def backlog_size(self, topic: str, position: ResetCursorData) -> int:
        """Bytes from a place to the end."""
