"""Where a consumer or reader begins, and how far its program has come (spec SDK-27, SDK-28). Pure.

The broker begins at an entry; what is before the place within that entry is left out here.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga._entries.entry import Entry
from geminga_protocol.ack_set import from_bits
from geminga_protocol.message_id import EARLIEST_ID, LATEST_ID, MessageId


class Start:
    """The place to begin at, which moves along with what is taken.

    `first` is None if the broker knows it: for a durable subscription, which it remembers, or from
    the subscription's initial position.
    """

    def __init__(self, first: MessageId | None, inclusive: bool, *, durable: bool = False) -> None:
        self._inclusive = inclusive
        self._durable = durable
        self._first = None if first is None else self._place(first)
        self._done: tuple[int, int, int] | None = None
        self._current: Entry | None = None
        self._chunk: tuple[int, int] | None = None
        self._front: tuple[int, int] | None = None
        self._behind: tuple[int, int, int] | None = None
        self._is_reached = False

    def _place(self, at: MessageId) -> MessageId:
        """A message of several chunks is wanted from its first one on, or passed by its last."""
        return at.first_chunk if self._inclusive and at.first_chunk is not None else at

    @property
    def _taken(self) -> tuple[int, int, int] | None:
        """Ledger, entry and batch index of the last message that the program took."""
        entry = self._current
        if entry is None:
            return self._done
        return entry.ledger_id, entry.entry_id, entry.indexes[entry.at - 1]

    @property
    def resume_id(self) -> MessageId | None:
        """Where a subscription that the broker doesn't remember goes on."""
        taken = self._taken
        if taken is not None:
            if self._chunk is not None:
                return MessageId(*self._chunk)
            ledger_id, entry_id, index = taken
            return MessageId(ledger_id, entry_id, batch_index=index)
        if self._front is not None:
            # A place within a batch: the broker begins at the entry itself, not behind it.
            return MessageId(*self._front, batch_index=0)
        return self._first

    def lost(self, begins: Iterable[tuple[int, int] | None]) -> None:
        """Everything that wasn't taken comes again. `begins` are where messages begin that weren't
        taken, whole or not yet: if one is of chunks and the program took another one meanwhile, the
        broker has to go back behind that.
        """
        if self._durable:
            if self._is_reached:
                # The broker has been there: where it begins now, somebody else may have moved it.
                self._first = None
            return
        taken = self._behind = self._taken
        known = [at for at in begins if at is not None]
        if taken is None:
            self._front = min((at for at in (self._front, *known) if at is not None), default=None)
            return
        # What the last connection didn't go behind yet counts still.
        known += [] if self._chunk is None else [self._chunk]
        self._chunk = min((at for at in known if at < taken[:2]), default=None)

    def all_again(self) -> None:
        """What was taken is wanted again: the program has refused it."""
        self._behind = None

    def is_taken(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the program has come as far as that entry."""
        taken = self._taken
        return taken is not None and (ledger_id, entry_id) <= taken[:2]

    def first_of(self, entry: Entry) -> int:
        """Index of the first message of the entry that is wanted; its size if none is."""
        first = self._first
        behind = self._behind
        if first is None and behind is None:
            return 0
        position = entry.ledger_id, entry.entry_id
        size = entry.message_count
        # What a broker that remembers counts as redelivered, it was asked for.
        if behind is not None and not entry.redelivery_count:
            if position < behind[:2]:
                # It came again for the sake of the chunks around it.
                return 0 if self._chunk is None else size
            self._chunk = self._behind = None
            if position == behind[:2]:
                # Only what follows: a subscription without memory was attached again. One with
                # memory is given again what was taken and is not acknowledged.
                return size if behind[2] < 0 else behind[2] + 1
        if first is None:
            return 0
        self._is_reached = True
        if position != (first.ledger_id, first.entry_id):
            return 0
        if first.batch_index < 0:
            return 0 if self._inclusive else size
        return first.batch_index + (0 if self._inclusive else 1)

    def passes(self, ledger_id: int, entry_id: int) -> bool:
        """Whether it begins right behind that entry."""
        first = self._first
        return (
            first is not None
            and not self._inclusive
            and first.batch_index < 0
            and (ledger_id, entry_id) == (first.ledger_id, first.entry_id)
        )

    def taken(self, entry: Entry) -> None:
        """The program took messages of that entry."""
        indexes = entry.indexes
        if entry.at < len(indexes):
            self._current = entry
        else:
            # Not held longer than needed: it may be large.
            self._done = entry.ledger_id, entry.entry_id, indexes[-1]
            self._current = None

    def moved(self, to: MessageId | int) -> None:
        """A seek: to a message, or to a time, from where on everything is wanted."""
        self._first = self._place(to) if isinstance(to, MessageId) else EARLIEST_ID
        self._is_reached = False
        self._done = None
        self._current = None
        self._chunk = self._front = self._behind = None

    def seek_id(self, to: MessageId) -> MessageId:
        """The id to seek to; within a batch it tells the broker which messages are still wanted."""
        to = self._place(to)
        first = to.batch_index + (0 if self._inclusive else 1)
        if to.batch_index < 0 or first >= to.batch_size:
            return MessageId(to.ledger_id, to.entry_id, to.partition)
        left = from_bits(((1 << to.batch_size) - 1) >> first << first)
        return MessageId(to.ledger_id, to.entry_id, to.partition, ack_set=left)

    def is_behind(self, last: MessageId, mark_delete: MessageId | None) -> bool:
        """Whether the topic's last message is after what the program has taken
        (ConsumerImpl.hasMessageAvailable).
        """
        if last.entry_id < 0:
            return False
        newest = last.ledger_id, last.entry_id, last.batch_index
        taken = self._taken
        if taken is not None:
            return newest > taken
        if self._front is not None:
            return newest[:2] >= self._front
        first = self._first
        if first is not None and first != LATEST_ID and first != EARLIEST_ID:
            reached = first.ledger_id, first.entry_id, first.batch_index
            return newest >= reached if self._inclusive else newest > reached
        if mark_delete is None:
            return first != LATEST_ID
        return newest[:2] > (mark_delete.ledger_id, mark_delete.entry_id)
