"""What operations on topics take."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from geminga._admin.model.base import Model
from geminga._admin.model.cluster import AuthAction

TopicMode = Literal["PERSISTENT", "NON_PERSISTENT", "ALL"]
TopicDomain = Literal["persistent", "non-persistent"]
SplitAlgorithm = Literal[
    "range_equally_divide", "topic_count_equally_divide", "specified_positions_divide",
    "flow_or_qps_equally_divide",
]  # fmt: skip


class GrantTopicPermission(Model):
    """A role that may use a topic."""

    topic: str
    role: str
    actions: list[AuthAction] = field(default_factory=list)


class RevokeTopicPermission(Model):
    """A role that may no longer use a topic."""

    topic: str
    role: str


class ResetCursorData(Model):
    """A place in a topic: `EARLIEST`, `LATEST`, or an entry or message."""

    ledger_id: int
    entry_id: int
    partition_index: int = -1
    batch_index: int = -1
    is_excluded: bool = field(default=False, name="excluded")
    """Whether the next message is meant."""


_LONG_MAX = (1 << 63) - 1
EARLIEST = ResetCursorData(ledger_id=-1, entry_id=-1)
LATEST = ResetCursorData(ledger_id=_LONG_MAX, entry_id=_LONG_MAX)
