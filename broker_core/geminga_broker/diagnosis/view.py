"""What `reasons` looks at: a snapshot of a subscription, as plain data (spec OP-12)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class ConsumerView(NamedTuple):
    """A connected consumer."""

    name: str
    priority: int = 0
    permits: int = 1
    sent: int = 0
    """Messages that it was sent since it joined."""
    unacked: int = 0
    unacked_max: int = 0
    """Bound of its unacknowledged messages; 0: unlimited."""
    blocked: bool = False
    """Whether it reached that bound, and isn't back at half of it."""
    writable: bool = True
    """Whether its connection takes more bytes."""
    active: bool = False
    """Whether it is the only one that is sent messages, of Exclusive and Failover."""
    acked_ago_s: float = math.inf
    """Since its last acknowledgement."""

    @property
    def ready(self) -> bool:
        """Whether it may be sent an entry now."""
        room = self.permits
        if self.unacked_max:
            room = min(room, self.unacked_max - self.unacked)
        return not self.blocked and room > 0 and self.writable


class Whose(Enum):
    """Who share a rate."""

    SUBSCRIPTION = "subscription"
    TOPIC = "topic"
    BROKER = "broker"


class Throttle(NamedTuple):
    """A dispatch rate that is used up."""

    whose: Whose
    messages: int
    """Messages in a period; 0: any number."""
    bytes: int
    """Bytes in a period; 0: any number."""
    period_s: int
    wait_s: float


class Draining(NamedTuple):
    """Hashes of Key_Shared that wait for acknowledgements of their former consumer."""

    holder: str
    hashes: int
    unacked: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """The subscription's topic."""

    name: str
    persistent: bool = True
    state: str = "open"
    """One of `TopicState`."""
    moving: bool = False
    """Whether its bundle goes to another broker."""
    producers: int = 0
    last_position: str = ""
    producers_refused: bool = False
    """Whether a backlog quota is exceeded that refuses producers."""
    no_ledger: bool = False
    """Whether its log has no ledger that takes messages, and could make none."""
    evictions: int = 0
    """How often a backlog quota dropped the oldest entries since it was loaded."""


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription. Numbers of entries are those of the log: a batch is one."""

    topic: TopicView
    name: str
    kind: str = "None"
    """Exclusive, Shared, Failover, Key_Shared; None before the first consumer."""
    consumers: tuple[ConsumerView, ...] = ()
    fenced: bool = False
    """Whether it is being deleted."""
    seeking: bool = False
    running: bool = True
    """Whether its dispatch task runs."""
    reading_s: float = 0.0
    """How long a read of the log has been running; 0 if none is."""
    read_error: str = ""
    """Why the last read failed; empty if it succeeded."""
    backlog: int = 0
    has_more: bool = False
    """Whether the log has entries that were not read yet."""
    waiting: int = 0
    """Entries that were read and wait for a consumer."""
    failover_wait_s: float = 0.0
    """How long a new active consumer still waits for the old one's acknowledgements."""
    unacked: int = 0
    unacked_max: int = 0
    over_limit: bool = False
    """Whether it reached that bound, and isn't back at half of it."""
    paused_by_broker: bool = False
    throttles: tuple[Throttle, ...] = ()
    delayed: int = 0
    delayed_full: bool = False
    due_in_s: float | None = None
    """When the first delayed entry is due."""
    draining: tuple[Draining, ...] = ()
    look_ahead_full: bool = False
    unowned_hashes: tuple[tuple[int, int], ...] = ()
    """Ranges of hashes that no consumer asked for, of Key_Shared with fixed ranges."""
    chunks_full: bool = False
    filters: tuple[str, ...] = ()
    filtered: int = 0
    """Messages that the filters saw."""
    rejected: int = 0
    rescheduled: int = 0
    read_compacted: bool = False
    dropped: int = 0
    """Messages that a non-persistent topic dropped, as no consumer had a permit."""

    @property
    def active(self) -> ConsumerView | None:
        """The only consumer that is sent messages, of Exclusive and Failover."""
        return next((each for each in self.consumers if each.active), None)

    @property
    def active_name(self) -> str:
        """Its name; empty without one."""
        return "" if self.active is None else self.active.name
