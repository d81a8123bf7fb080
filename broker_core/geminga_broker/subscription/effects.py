"""Effects of a subscription's machine, to be run in order: an Acknowledge before a Send is recorded
before the messages are sent.

Read, ReadAt and CollectDue take time. Each is the last effect of its step, and its result is the
next event of the round. All others are synchronous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeAlias

from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription.state import NO_ACK_SETS, NO_COUNTS, M
from geminga_protocol.ids import Position


class Read(NamedTuple):
    """Read the next entries."""

    entries_max: int
    bytes_max: int
    upto: Position | None = None
    """The last entry that may be read; None: any."""


class ReadAt(NamedTuple):
    """Read these entries again, ascending, up to about that many bytes."""

    positions: Sequence[Position]
    bytes_max: int


class CollectDue(NamedTuple):
    """Restore saved delays, and collect up to that many due entries."""

    entries_max: int


class Send(NamedTuple, Generic[M]):
    """Write entries to a consumer, whose permits are already charged."""

    member: M
    entries: Sequence[Entry]
    messages: int
    redeliveries: Mapping[Position, int] = NO_COUNTS
    """Earlier deliveries of each entry."""
    ack_sets: Mapping[Position, tuple[int, ...]] = NO_ACK_SETS
    """Ack sets of partly acknowledged batches."""


class Acknowledge(NamedTuple, Generic[M]):
    """Acknowledge individually. With `parts`, PartsRecorded follows."""

    acks: Sequence[Ack]
    member: M | None = None
    parts: Sequence[Position] = ()


class AcknowledgeUpto(NamedTuple):
    """Acknowledge cumulatively."""

    ack: Ack
    with_part: bool
    """Whether to record the last batch's acknowledged part, or leave that batch out."""


class CountRedelivered(NamedTuple, Generic[M]):
    """Count messages that a consumer gave back, for statistics."""

    member: M
    messages: int


class TellActive(NamedTuple, Generic[M]):
    """ACTIVE_CONSUMER_CHANGE."""

    member: M
    active: bool


class ReadFor(NamedTuple, Generic[M]):
    """Read with this consumer's cursor from now on: compacted or not."""

    member: M


class WakeAt(NamedTuple):
    """The round ends; run the next one at that time at the latest (wall clock)."""

    due_ms: int


class PauseUntil(NamedTuple):
    """The round ends; run the next one at that time at the latest (the loop's clock)."""

    time_s: float


class Order(Enum):
    """Effects without data."""

    REWIND = "read again from the mark-delete position"
    WAKE = "run a round soon"
    AGAIN = "this round is over; run the next one without waiting"
    SAVE_DELAYS = "save delayed entries, and delete snapshots that are needed no longer"
    PASS_OVER = "move the cursor over delayed entries"


REWIND, WAKE, AGAIN, SAVE_DELAYS, PASS_OVER = Order

Effect: TypeAlias = (
    Read
    | ReadAt
    | CollectDue
    | Send[M]
    | Acknowledge[M]
    | AcknowledgeUpto
    | CountRedelivered[M]
    | TellActive[M]
    | ReadFor[M]
    | WakeAt
    | PauseUntil
    | Order
)
