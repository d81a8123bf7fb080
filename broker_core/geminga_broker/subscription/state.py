"""State of a subscription's machine: its members, and the order of changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from geminga_broker.log.api import Ack, AckRun, Entry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.catch_up import ROUND_BYTES, ROUND_ENTRIES
from geminga_broker.subscription.entry_filters import FilterContext, FilterCounts, Judged, judge
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.ids import Position

_AVERAGE_WEIGHT = 0.9
"""Weight of the past in the average batch size (Consumer.avgPercent)."""

NO_ACK_SETS: Mapping[Position, tuple[int, ...]] = {}
NO_COUNTS: Mapping[Position, int] = {}


class Member:
    """A consumer as dispatch sees it: permits and unacknowledged entries (BR-32).

    Always: permits given = messages sent + permits available + permits held back while blocked. A
    batch's acknowledged messages don't count as sent. As in Apache, one permit is enough for an
    entry, so `permits` can be negative by a batch.
    """

    __slots__ = (
        "average",
        "blocked",
        "given",
        "held",
        "limit",
        "name",
        "pending",
        "permits",
        "priority",
        "sent",
        "unacked",
    )

    def __init__(self, name: str, priority: int = 0) -> None:
        self.name = name
        self.priority = priority
        self.limit = 0
        """Bound of unacknowledged messages; 0: unlimited."""
        self.permits = 0
        self.held = 0
        self.given = 0
        self.sent = 0
        self.unacked = 0
        self.blocked = False
        self.pending: dict[Position, int] = {}
        """Unacknowledged entries, with the messages of each; Shared and Key_Shared only. Bounded by
        the unacked limit."""
        self.average = 1.0

    @property
    def ready(self) -> bool:
        """Whether an entry may be sent now. A consumer also asks its connection; if only that is
        full, a Writable event follows.
        """
        return not self.blocked and self.room > 0

    @property
    def room(self) -> int:
        """Messages that may be sent now: permits, up to the limit of unacknowledged messages."""
        if self.limit:
            return min(self.permits, self.limit - self.unacked)
        return self.permits

    def set_limit(self, limit: int) -> None:
        """Change the limit of unacknowledged messages; may block or unblock."""
        self.limit = limit
        if limit and self.unacked >= limit:
            self.blocked = True
        elif self.blocked:
            self.unblock()

    def grant(self, permits: int) -> None:
        """FLOW; while the member is blocked, the permits are held back."""
        self.given += permits
        if self.blocked:
            self.held += permits
        else:
            self.permits += permits

    def take(self, entries: int, messages: int) -> None:
        """Count entries that are sent and not tracked."""
        self.permits -= messages
        self.sent += messages
        self.average = self.average * _AVERAGE_WEIGHT + (1 - _AVERAGE_WEIGHT) * messages / entries

    def track(self, entries: Sequence[Entry], counts: Sequence[int], messages: int) -> None:
        """Count entries that are sent, and hold them until they are acknowledged."""
        pending = self.pending
        for entry, count in zip(entries, counts, strict=True):
            pending[entry.position] = count
        self.take(len(counts), messages)
        self.unacked += messages
        if self.limit and self.unacked >= self.limit:
            self.blocked = True

    def release(self, messages: int) -> bool:
        """Count messages as acknowledged or given back. A blocked member is unblocked at half of
        its limit; returns whether that is now.
        """
        self.unacked -= messages
        assert self.unacked >= 0, "more acknowledged than sent"
        if self.blocked and self.unacked <= self.limit // 2:
            self.unblock()
            return True
        return False

    def unblock(self) -> None:
        """Make the held-back permits available."""
        self.blocked = False
        self.permits += self.held
        self.held = 0


M = TypeVar("M", bound=Member)


class Epochs:
    """The order of changes, by one counter. As reads take time, comparing epochs shows what changed
    since a read began.
    """

    __slots__ = ("acked", "changed", "now", "put_back", "reset", "rewound", "searched")

    def __init__(self) -> None:
        self.now = 1
        self.reset = 1
        """Last request to restart at the mark-delete position; a new subscription has one."""
        self.rewound = 0
        """Last restart."""
        self.put_back = 0
        """Last time that entries were queued to be resent."""
        self.acked = 0
        """Last acknowledgement of an entry without holder, which may be in a read right now."""
        self.changed = 1
        """Last change that may make a waiting entry sendable: permits, hashes."""
        self.searched = 0
        """Last search that found no sendable waiting entry."""

    @property
    def stale(self) -> bool:
        """Whether a reset is due: entries read before it must not be sent."""
        return self.reset > self.rewound

    def note_reset(self) -> None:
        """Request a restart."""
        self.now = self.reset = self.now + 1

    def note_put_back(self) -> None:
        """Entries were queued to be resent."""
        self.now = self.put_back = self.now + 1

    def note_acked(self) -> None:
        """Entries without holder were acknowledged."""
        self.now = self.acked = self.now + 1

    def note_changed(self) -> None:
        """Waiting entries may have become sendable."""
        self.now = self.changed = self.now + 1


class Acknowledged(Protocol):
    """The part of the cursor that the machine may use."""

    def is_deleted(self, position: Position) -> bool:
        """Whether the entry is acknowledged."""

    def ack_set(self, position: Position) -> tuple[int, ...]:
        """The ack set of a partly acknowledged batch; empty for all other entries."""


class State(Generic[M]):
    """State of both kinds of machine."""

    __slots__ = (
        "acknowledged",
        "allowance",
        "epochs",
        "filtered",
        "members",
        "options",
        "paced",
        "provisional",
        "readable_upto",
        "recipient",
        "unsent",
    )

    def __init__(
        self, options: TopicOptions, acknowledged: Acknowledged, recipient: FilterContext
    ) -> None:
        self.options = options
        self.acknowledged = acknowledged
        self.recipient = recipient
        self.members: list[M] = []
        self.epochs = Epochs()
        self.unsent: Sequence[Entry] = ()
        """Entries of one read at most, for which no member had permits."""
        self.allowance: int | None = None
        """How many messages the rate limits allow in this round; None: any number."""
        self.paced = False
        """Whether this round must be short: it reads old entries beside tail work."""
        self.filtered = FilterCounts()
        self.readable_upto: Position | None = None
        """The last entry that may be read; None: any."""
        self.provisional: dict[Position, int | None] = {}
        """Entries with a pending acknowledgement. Those with a hash were read: if it is revoked,
        they are queued. The others are still to be read."""

    @property
    def entries_max(self) -> int:
        """Bound of the entries of one read."""
        most = self.options.dispatch_entries_max
        return min(most, ROUND_ENTRIES) if self.paced else most

    @property
    def bytes_max(self) -> int:
        """Bound of the bytes of one read; the first entry may be larger."""
        most = self.options.dispatch_bytes_max
        return min(most, ROUND_BYTES) if self.paced else most

    def entries_wanted(self, permits: int, average: float) -> int:
        """How many entries to read for the permits, or the allowance."""
        if self.allowance is not None:
            permits = min(permits, self.allowance)
        return max(1, min(self.entries_max, int(permits / max(average, 1.0))))

    def without_acked(
        self, entries: Sequence[Entry], counts: Sequence[int]
    ) -> tuple[Sequence[int], Mapping[Position, tuple[int, ...]]]:
        """Counts of unacknowledged messages, and the ack sets of partly acknowledged batches."""
        of = self.acknowledged.ack_set
        pairs = zip(entries, counts, strict=True)
        found = {
            entry.position: words
            for entry, count in pairs
            if count > 1 and (words := of(entry.position))
        }
        if not found:
            return counts, NO_ACK_SETS
        left = [
            ack_sets.cardinality(found[entry.position]) if entry.position in found else count
            for entry, count in zip(entries, counts, strict=True)
        ]
        return left, found

    def recordable(self, acks: Sequence[Ack]) -> Sequence[Ack]:
        """The acknowledgements to record: those of parts of batches only if that is enabled."""
        if self.options.batch_index_ack or isinstance(acks, AckRun):
            return acks
        return [ack for ack in acks if not ack.ack_set]

    def judge(self, entries: Sequence[Entry]) -> Judged | None:
        """Apply the entry filters (BR-37); None without filters."""
        filters = self.options.entry_filters
        if not filters or not entries:
            return None
        return judge(filters, entries, self.recipient, self.filtered)

    def forget_deleted(self) -> None:
        """Drop unsent entries that an admin operation acknowledged (skip, expire)."""
        deleted = self.acknowledged.is_deleted
        self.unsent = [entry for entry in self.unsent if not deleted(entry.position)]
