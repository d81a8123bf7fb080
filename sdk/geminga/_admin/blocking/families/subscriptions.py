"""`geminga._admin.families/subscriptions` of the blocking face.

Made by tools/faces.py: don't edit.
"""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from geminga._admin import declared as rest
from geminga._admin.messages import messages_of

if TYPE_CHECKING:
    from geminga._admin.messages import StoredMessages
    from geminga._admin.model.base import Names
    from geminga._admin.model.schemas import (
        GetAllVersionsSchemaResponse,
        GetSchemaResponse,
        IsCompatibilityResponse,
        PostSchemaPayload,
        SchemaMetadata,
        SchemaVersion,
    )
    from geminga._admin.model.stats import AnalyzeSubscriptionBacklogResult, Findings, Position
    from geminga._admin.model.topics import ResetCursorData
    from geminga_runtime.http.answers import HttpAnswer

_TOPIC = "/admin/v2/{topic}"
_SUBSCRIPTION = f"{_TOPIC}/subscription/{{subscription}}"
_SCHEMAS = "/admin/v2/schemas/{topic:schema}"


def _version(answer: HttpAnswer) -> SchemaVersion:
    """The version of an uploaded schema, which stands in an object of its own."""
    from geminga._admin.model.schemas import PostSchemaResponse, SchemaVersion

    found = rest.decoded(answer, PostSchemaResponse, "schema").version
    return found if isinstance(found, SchemaVersion) else SchemaVersion(version=found)


class Subscriptions(rest.BlockingFamily):
    """Subscriptions of topics; of a partitioned topic those of all partitions at once."""

    @rest.get(f"{_TOPIC}/subscriptions")
    def list(self, topic: str) -> Names:
        """The names of all subscriptions."""

    @rest.put(_SUBSCRIPTION, body="position")
    def create(
        self,
        topic: str,
        subscription: str,
        position: ResetCursorData | None = None,
        *,
        replicated: bool = False,
    ) -> None:
        """Create a subscription that begins at a place; without one, after the last message."""

    @rest.delete(_SUBSCRIPTION)
    def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription without consumers; with `force` they are sent away."""

    @rest.get(f"{_SUBSCRIPTION}/properties")
    def get_properties(self, topic: str, subscription: str) -> dict[str, str] | None:
        """All properties."""

    @rest.put(f"{_SUBSCRIPTION}/properties", body="properties")
    def update_properties(
        self, topic: str, subscription: str, properties: Mapping[str, str]
    ) -> None:
        """Replace all properties."""

    @rest.post(f"{_SUBSCRIPTION}/skip/{{count}}")
    def skip(self, topic: str, subscription: str, count: int) -> None:
        """Acknowledge the next messages."""

    @rest.post(f"{_SUBSCRIPTION}/skip_all")
    def skip_all(self, topic: str, subscription: str) -> None:
        """Acknowledge all messages."""

    @rest.post(f"{_SUBSCRIPTION}/expireMessages/{{seconds}}")
    def expire(self, topic: str, subscription: str, seconds: int) -> None:
        """Acknowledge the messages that are older."""

    @rest.post(f"{_SUBSCRIPTION}/expireMessages", body="position")
    def expire_to(self, topic: str, subscription: str, position: ResetCursorData) -> None:
        """Acknowledge the messages up to a place."""

    @rest.post(f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}")
    def expire_all(self, topic: str, seconds: int) -> None:
        """Acknowledge the messages that are older for all subscriptions."""

    @rest.post(f"{_SUBSCRIPTION}/resetcursor/{{timestamp_ms}}")
    def reset_to_time(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Deliver again from the first message that was published at that time, or later."""

    @rest.post(f"{_SUBSCRIPTION}/resetcursor", body="position")
    def reset(self, topic: str, subscription: str, position: ResetCursorData) -> None:
        """Deliver again from a place on."""

    @rest.post(f"{_SUBSCRIPTION}/analyzeBacklog", body="position")
    def analyze_backlog(
        self, topic: str, subscription: str, position: ResetCursorData | None = None
    ) -> AnalyzeSubscriptionBacklogResult:
        """Read the backlog, and count what it has."""

    @rest.get(f"{_SUBSCRIPTION}/why")
    def why(self, topic: str, subscription: str) -> Findings:
        """Why the subscription gets nothing, the worst reason first; on a fine one one that says
        so. Only Geminga's brokers can tell. Raises NotFoundError on Apache's.
        """

    @rest.get(f"{_SUBSCRIPTION}/replicatedSubscriptionStatus")
    def get_replicated(self, topic: str, subscription: str) -> dict[str, bool]:
        """Whether the subscription is replicated to other clusters, by topic."""

    @rest.post(f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", body="enabled")
    def set_replicated(self, topic: str, subscription: str, enabled: bool) -> None:
        """Whether the subscription is replicated to other clusters."""

    @rest.get(f"{_SUBSCRIPTION}/position/{{number}}", reader=messages_of)
    def peek(self, topic: str, subscription: str, number: int = 1) -> StoredMessages:
        """The messages of the backlog's entry with that number, from 1 on; several of a batch.
        Nothing is acknowledged. Raises NotFoundError behind the last one.
        """


class Messages(rest.BlockingFamily):
    """Messages of topics."""

    @rest.get(f"{_TOPIC}/ledger/{{ledger_id}}/entry/{{entry_id}}", reader=messages_of)
    def get(self, topic: str, ledger_id: int, entry_id: int) -> StoredMessages:
        """The messages of an entry; several if it is a batch."""

    @rest.get(f"{_TOPIC}/examinemessage", reader=messages_of)
    def examine(
        self,
        topic: str,
        *,
        initial_position: Literal["earliest", "latest"] = "latest",
        message_position: int = 1,
    ) -> StoredMessages:
        """The messages of the entry with that number, from 1 on, counted from an end."""

    @rest.get(f"{_TOPIC}/messageid/{{timestamp_ms}}")
    def id_at(self, topic: str, timestamp_ms: int) -> Position | None:
        """The place of the first message that was published at that time, or later."""


class Schemas(rest.BlockingFamily):
    """Schemas of topics."""

    @rest.get(f"{_SCHEMAS}/schema")
    def get(self, topic: str) -> GetSchemaResponse:
        """The newest version."""

    @rest.get(f"{_SCHEMAS}/schema/{{version}}")
    def get_version(self, topic: str, version: int) -> GetSchemaResponse:
        """One version."""

    @rest.get(f"{_SCHEMAS}/schemas")
    def get_all(self, topic: str) -> GetAllVersionsSchemaResponse:
        """All versions."""

    @rest.post(f"{_SCHEMAS}/schema", body="schema", reader=_version)
    def upload(self, topic: str, schema: PostSchemaPayload) -> SchemaVersion:
        """Add a version, if the topic's rule allows it."""

    @rest.delete(f"{_SCHEMAS}/schema")
    def delete(self, topic: str, *, force: bool = False) -> SchemaVersion:
        """Delete all versions; with `force` also where they are stored."""

    @rest.post(f"{_SCHEMAS}/compatibility", body="schema")
    def compatibility(self, topic: str, schema: PostSchemaPayload) -> IsCompatibilityResponse:
        """Whether `upload` would be allowed."""

    @rest.post(f"{_SCHEMAS}/version", body="schema")
    def version_of(self, topic: str, schema: PostSchemaPayload) -> SchemaVersion:
        """The version that has this schema."""

    @rest.get(f"{_SCHEMAS}/metadata")
    def metadata(self, topic: str) -> SchemaMetadata:
        """Where the versions are stored."""
