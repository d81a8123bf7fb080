"""Events of a subscription's machine. Each has a whole run of entries or acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeAlias

from geminga_broker.log.api import Ack, Entry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.state import M
from geminga_broker.topic.api import KeySharedPolicy
from geminga_protocol.ids import Position


class Joined(NamedTuple, Generic[M]):
    """A consumer wants to join. If it may not, the step raises BrokerError and changes nothing."""

    member: M
    policy: KeySharedPolicy


class Welcomed(NamedTuple, Generic[M]):
    """The client of a new consumer has its response: other frames may follow."""

    member: M
    now_s: float


class Left(NamedTuple, Generic[M]):
    """A consumer left."""

    member: M
    now_s: float
    all_leave: bool = False
    """Whether all others leave too: then its entries are not queued for them."""


class Flow(NamedTuple, Generic[M]):
    """FLOW."""

    member: M
    permits: int


class Writable(NamedTuple):
    """A consumer's connection takes more."""


class Acked(NamedTuple, Generic[M]):
    """Acknowledgements of one consumer."""

    member: M
    acks: Sequence[Ack]
    cumulative: bool = False
    pending: bool = False
    """Individual ones of whole entries: these are neither recorded nor sent before Resolved."""


class Resolved(NamedTuple):
    """Pending acknowledgements are to be recorded, or revoked: then the entries are resent."""

    positions: Sequence[Position]
    committed: bool


class ReadableUpto(NamedTuple):
    """The last entry that may be read, None: any. It never moves back: the first one is set before
    any entry is appended after it.
    """

    position: Position | None


class PartsRecorded(NamedTuple, Generic[M]):
    """The cursor has recorded partial acknowledgements of these batches."""

    member: M
    positions: Sequence[Position]


class Redelivered(NamedTuple, Generic[M]):
    """A consumer gives back entries, None: all its entries."""

    member: M
    positions: Sequence[Position] | None


class DeletedOutside(NamedTuple):
    """Entries were acknowledged by skip, expire or seek."""

    mark_delete: Position


class OptionsChanged(NamedTuple):
    """The topic's options changed. The limits of the members are already set."""

    options: TopicOptions


class RoundBegun(NamedTuple):
    """The pump has time for a round."""

    now_s: float
    available: bool = True
    """Whether the log has new entries."""
    allowance: int | None = None
    """How many messages the rate limits allow; None: any number."""
    paced: bool = False
    """Whether the round must be short."""


class DueCollected(NamedTuple):
    """Result of CollectDue: entries with their hashes. None: all delayed entries are forgotten, and
    must be reread from the log.
    """

    found: Sequence[tuple[Position, int]] | None


class EntriesRead(NamedTuple):
    """Result of Read; empty at the end of the log."""

    entries: Sequence[Entry]
    now_ms: int
    available: bool = True
    """Whether the log has more. Later appends wake the pump."""


class EntriesReadAgain(NamedTuple):
    """Result of ReadAt: the positions that were read, and their unacknowledged entries."""

    positions: Sequence[Position]
    entries: Sequence[Entry]
    now_ms: int


class ReadFailed(NamedTuple):
    """Read raised an error. Without effects, the machine has nothing to send."""


Event: TypeAlias = (
    Joined[M]
    | Welcomed[M]
    | Left[M]
    | Flow[M]
    | Writable
    | Acked[M]
    | PartsRecorded[M]
    | Redelivered[M]
    | Resolved
    | ReadableUpto
    | DeletedOutside
    | OptionsChanged
    | RoundBegun
    | DueCollected
    | EntriesRead
    | EntriesReadAgain
    | ReadFailed
)
