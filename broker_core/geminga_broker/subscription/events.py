"""What happens to a subscription: all that its machine is told. Each carries a run of entries or
acknowledgements, never one of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeAlias

from geminga_broker.log.api import Ack, Entry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.state import M
from geminga_broker.topic.api import KeySharedPolicy
from geminga_protocol.ids import Position


class Joined(NamedTuple, Generic[M]):
    """A consumer wants to join. The step raises BrokerError if it may not; nothing is changed
    then.
    """

    member: M
    policy: KeySharedPolicy


class Welcomed(NamedTuple, Generic[M]):
    """The client of a consumer that joined has its answer: it may be sent more."""

    member: M
    now_s: float


class Left(NamedTuple, Generic[M]):
    """A consumer left."""

    member: M
    now_s: float
    all_leave: bool = False
    """Whether the others leave too: what this one held is queued for none of them."""


class Flow(NamedTuple, Generic[M]):
    """FLOW."""

    member: M
    permits: int


class Writable(NamedTuple):
    """The connection of a consumer takes more again."""


class Acked(NamedTuple, Generic[M]):
    """Acknowledgements of one consumer."""

    member: M
    acks: Sequence[Ack]
    cumulative: bool = False
    pending: bool = False
    """Of whole entries, one by one: none is recorded, and none of them sent, before Resolved."""


class Resolved(NamedTuple):
    """Pending acknowledgements are recorded now, or revoked: then the entries are sent again."""

    positions: Sequence[Position]
    committed: bool


class ReadableUpto(NamedTuple):
    """The last entry that may be read, None: any. It never moves back: a first one is set before
    anything is appended behind it.
    """

    position: Position | None


class PartsRecorded(NamedTuple, Generic[M]):
    """The cursor has recorded that parts of these batches are acknowledged."""

    member: M
    positions: Sequence[Position]


class Redelivered(NamedTuple, Generic[M]):
    """A consumer gives back entries, None: all that it holds."""

    member: M
    positions: Sequence[Position] | None


class DeletedOutside(NamedTuple):
    """Entries were acknowledged by skip, expire or seek."""

    mark_delete: Position


class OptionsChanged(NamedTuple):
    """The topic's options are others now. The limits of the members were set already."""

    options: TopicOptions


class RoundBegun(NamedTuple):
    """The pump has time for a round."""

    now_s: float
    available: bool = True
    """Whether the log has new entries."""
    allowance: int | None = None
    """How many messages rate limits let go out; None: any number."""
    paced: bool = False
    """Whether the round is to be short."""


class DueCollected(NamedTuple):
    """Result of CollectDue: entries with their hashes. None: all that was delayed is forgotten and
    must be read again from the log.
    """

    found: Sequence[tuple[Position, int]] | None


class EntriesRead(NamedTuple):
    """Result of Read; empty at the end of the log."""

    entries: Sequence[Entry]
    now_ms: int
    available: bool = True
    """Whether the log has more. If it gets more later, the pump is woken."""


class EntriesReadAgain(NamedTuple):
    """Result of ReadAt: the positions that were read, and their entries that are not
    acknowledged.
    """

    positions: Sequence[Position]
    entries: Sequence[Entry]
    now_ms: int


class ReadFailed(NamedTuple):
    """Read raised an error. A step without effects: the machine has nothing to send."""


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
