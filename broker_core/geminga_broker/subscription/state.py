"""What a subscription's machine knows: its members, and what happened in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from geminga_broker.log.api import Ack, Entry
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
    """A consumer as dispatch sees it: permits, and what it has yet to acknowledge (BR-32).

    At all times permits given = messages sent + permits available + permits held back while
    blocked. A message of a batch that is acknowledged already does not count as sent. As in Apache,
    an entry goes out whole as long as one permit is left, so `permits` can be negative by a batch.
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
        """Most unacknowledged messages; 0: any number."""
        self.permits = 0
        self.held = 0
        self.given = 0
        self.sent = 0
        self.unacked = 0
        self.blocked = False
        self.pending: dict[Position, int] = {}
        """Entries to be acknowledged, with the messages of each; Shared and Key_Shared only.
        Bounded by the unacked limit."""
        self.average = 1.0

    @property
    def ready(self) -> bool:
        """Whether an entry may go out now. A consumer asks its connection too; if only that takes
        no more, a Writable event follows when it does.
        """
        return not self.blocked and self.room > 0

    @property
    def room(self) -> int:
        """Messages that may go out now: permits, up to the limit of unacknowledged messages."""
        if self.limit:
            return min(self.permits, self.limit - self.unacked)
        return self.permits

    def set_limit(self, limit: int) -> None:
        """Change the limit of unacknowledged messages; blocks or unblocks."""
        self.limit = limit
        if limit and self.unacked >= limit:
            self.blocked = True
        elif self.blocked:
            self.unblock()

    def grant(self, permits: int) -> None:
        """FLOW: permits are held back while the member is blocked."""
        self.given += permits
        if self.blocked:
            self.held += permits
        else:
            self.permits += permits

    def take(self, entries: int, messages: int) -> None:
        """Count entries that are being sent, and not tracked."""
        self.permits -= messages
        self.sent += messages
        self.average = self.average * _AVERAGE_WEIGHT + (1 - _AVERAGE_WEIGHT) * messages / entries

    def track(self, entries: Sequence[Entry], counts: Sequence[int], messages: int) -> None:
        """Count entries that are being sent, and hold them until they are acknowledged."""
        pending = self.pending
        for entry, count in zip(entries, counts, strict=True):
            pending[entry.position] = count
        self.take(len(counts), messages)
        self.unacked += messages
        if self.limit and self.unacked >= self.limit:
            self.blocked = True

    def release(self, messages: int) -> bool:
        """Count messages as acknowledged or given back. A blocked member goes on at half of its
        limit; returns whether it does so now.
        """
        self.unacked -= messages
        assert self.unacked >= 0, "more acknowledged than sent"
        if self.blocked and self.unacked <= self.limit // 2:
            self.unblock()
            return True
        return False

    def unblock(self) -> None:
        """Let the permits that were held back count."""
        self.blocked = False
        self.permits += self.held
        self.held = 0


M = TypeVar("M", bound=Member)


class Epochs:
    """When things happened, by one counter. A read takes time: comparing epochs tells what changed
    since it was asked for.
    """

    __slots__ = ("acked", "changed", "now", "put_back", "reset", "rewound", "searched")

    def __init__(self) -> None:
        self.now = 1
        self.reset = 1
        """Last request to start over from the mark-delete position; there is one at the start."""
        self.rewound = 0
        """Last time that was done."""
        self.put_back = 0
        """Last time entries were queued to be sent again."""
        self.acked = 0
        """Last acknowledgement of an entry that no member held: it may just be read."""
        self.changed = 1
        """Last change by which a waiting entry may have become sendable: permits, hashes."""
        self.searched = 0
        """Last time that no waiting entry was found sendable."""

    @property
    def stale(self) -> bool:
        """Whether a reset is due: what was read before it must not be sent."""
        return self.reset > self.rewound

    def note_reset(self) -> None:
        """Ask to start over."""
        self.now = self.reset = self.now + 1

    def note_put_back(self) -> None:
        """Entries were queued to be sent again."""
        self.now = self.put_back = self.now + 1

    def note_acked(self) -> None:
        """Entries were acknowledged that no member held."""
        self.now = self.acked = self.now + 1

    def note_changed(self) -> None:
        """Waiting entries may have become sendable."""
        self.now = self.changed = self.now + 1


class Acknowledged(Protocol):
    """The cursor, as far as the machine may look at it."""

    def is_deleted(self, position: Position) -> bool:
        """Whether the entry is acknowledged."""

    def ack_set(self, position: Position) -> tuple[int, ...]:
        """BitSet words of the batch's unacknowledged messages; empty if no part of it is
        acknowledged.
        """


class State(Generic[M]):
    """What both kinds of machine keep."""

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
        """Entries read that found no member with permits. At most one read's."""
        self.allowance: int | None = None
        """How many messages rate limits let go out in this round; None: any number."""
        self.paced = False
        """Whether this round is to be short: it reads old entries beside tail work."""
        self.filtered = FilterCounts()
        self.readable_upto: Position | None = None
        """The last entry that may be read; None: any."""
        self.provisional: dict[Position, int | None] = {}
        """Entries whose acknowledgement is pending. Those that would have been read and queued have
        their hash: they are queued if it is revoked. The others come up by themselves."""

    @property
    def entries_max(self) -> int:
        """Most entries that one read may return."""
        most = self.options.dispatch_entries_max
        return min(most, ROUND_ENTRIES) if self.paced else most

    @property
    def bytes_max(self) -> int:
        """Most bytes that one read may return, if they are more than one entry."""
        most = self.options.dispatch_bytes_max
        return min(most, ROUND_BYTES) if self.paced else most

    def entries_wanted(self, permits: int, average: float) -> int:
        """How many entries to read so that permits, or the allowance, are about used up."""
        if self.allowance is not None:
            permits = min(permits, self.allowance)
        return max(1, min(self.entries_max, int(permits / max(average, 1.0))))

    def without_acked(
        self, entries: Sequence[Entry], counts: Sequence[int]
    ) -> tuple[Sequence[int], Mapping[Position, tuple[int, ...]]]:
        """Message counts without what is acknowledged already, and the ack sets of batches that are
        acknowledged in part.
        """
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
        """Those that the cursor keeps: parts of batches only if that is switched on."""
        if self.options.batch_index_ack:
            return acks
        return [ack for ack in acks if not ack.ack_set]

    def judge(self, entries: Sequence[Entry]) -> Judged | None:
        """What entry filters say (BR-37); None without filters."""
        filters = self.options.entry_filters
        if not filters or not entries:
            return None
        return judge(filters, entries, self.recipient, self.filtered)

    def forget_deleted(self) -> None:
        """Drop unsent entries that were acknowledged from outside (skip, expire)."""
        deleted = self.acknowledged.is_deleted
        self.unsent = [entry for entry in self.unsent if not deleted(entry.position)]
