"""Backlog quotas: bounds of the size and age of unacknowledged messages (spec BR-23; Apache's
`BacklogQuotaManager`).

A quota by size limits the bytes after the slowest durable cursor, one by age the time since its
first unacknowledged entry was published. While one is exceeded, producers are closed and refused,
or the oldest part of the backlog is acknowledged, depending on its policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LedgerStatistics
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

EVICTION_FACTOR = 0.9
"""Eviction continues until the backlog is this part of its limit."""


class QuotaType(Enum):
    """What a quota limits; the values are Apache's names."""

    SIZE = "destination_storage"
    AGE = "message_age"


class QuotaPolicy(Enum):
    """The reaction to an exceeded quota; the values are Apache's names.

    Both producer policies close producers and refuse new ones, with different errors: after HOLD
    clients wait, after EXCEPTION they fail pending messages.
    """

    HOLD = "producer_request_hold"
    EXCEPTION = "producer_exception"
    EVICTION = "consumer_backlog_eviction"


class BacklogQuota(NamedTuple):
    """A quota; a negative size, or an age of 0 or less, is unlimited."""

    size_bytes: int = -1
    age_s: int = -1
    policy: QuotaPolicy = QuotaPolicy.HOLD

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> BacklogQuota:
        """A record as in the REST API and the store. Raises ValueError without a policy."""
        size = record.get("limitSize") or record.get("limit") or 0
        age = record.get("limitTime") or 0
        return cls(
            size if isinstance(size, int) else 0,
            age if isinstance(age, int) else 0,
            QuotaPolicy(record.get("policy")),
        )

    def to_json(self) -> dict[str, object]:
        """Apache's `BacklogQuotaImpl`, with the old name of the size too."""
        return {
            "limit": self.size_bytes,
            "limitSize": self.size_bytes,
            "limitTime": self.age_s,
            "policy": self.policy.value,
        }


class Quotas(NamedTuple):
    """The quotas of one topic."""

    size: BacklogQuota = BacklogQuota()
    age: BacklogQuota = BacklogQuota()
    precise_age: bool = False
    """Whether age counts from a message's publishing, or from the closing of its ledger."""


def backlog_bytes(ledgers: Iterable[LedgerStatistics], mark_delete: Position) -> int:
    """Bytes of the entries after a position: whole ledgers exactly, the position's own ledger by
    its average entry (ManagedLedgerImpl.estimateBacklogFromPosition).
    """
    size = 0
    for ledger in ledgers:
        if ledger.ledger_id < mark_delete.ledger_id:
            continue
        size += ledger.size_bytes
        if ledger.ledger_id == mark_delete.ledger_id:
            size -= _consumed_bytes(ledger, mark_delete.entry_id + 1)
    return size


def _consumed_bytes(ledger: LedgerStatistics, consumed: int) -> int:
    if ledger.entries <= 0 or consumed <= 0:
        return 0
    if ledger.entries <= consumed:
        return ledger.size_bytes
    return consumed * (ledger.size_bytes // ledger.entries)


def entries_to_evict(backlog: int, limit: int, entries: int) -> int:
    """How many of a backlog's entries to acknowledge, to leave about `EVICTION_FACTOR` of the
    limit; `backlog` and `limit` are bytes.
    """
    target = int(EVICTION_FACTOR * limit)
    if backlog <= target:
        return 0
    return int((backlog - target) * float(entries) / backlog)


def closed_ms_of_oldest(ledgers: Iterable[LedgerStatistics], mark_delete: Position) -> int:
    """When the ledger with the first entry after the position was closed, in milliseconds; 0 if it
    is still open, or there is no such entry.
    """
    for ledger in ledgers:
        if ledger.ledger_id < mark_delete.ledger_id:
            continue
        if ledger.ledger_id == mark_delete.ledger_id and mark_delete.entry_id + 1 >= ledger.entries:
            continue
        if ledger.entries:
            return ledger.closed_ms
    return 0


def refusal(policy: QuotaPolicy) -> BrokerError:
    """The error for a refused producer."""
    code = ServerError.ProducerBlockedQuotaExceededError
    if policy is QuotaPolicy.EXCEPTION:
        code = ServerError.ProducerBlockedQuotaExceededException
    return BrokerError(code, "Cannot create producer on topic with backlog quota exceeded")
