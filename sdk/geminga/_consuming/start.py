"""A consumer's or reader's start position, and its progress (spec SDK-27, SDK-28). Pure.

The broker begins at an entry; messages of that entry before the position are skipped here.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga._entries.entry import Entry
from geminga_protocol.ack_set import from_bits
from geminga_protocol.message_id import EARLIEST_ID, LATEST_ID, MessageId
from geminga_protocol.pb.pulsar_api_pb2 import CommandGetLastMessageIdResponse


class Start:
    """The start position, which follows the taken messages.

    `first` is None if the broker decides: by a durable subscription's cursor, or by the
    subscription's initial position.
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
        """A chunked message begins at its first chunk if inclusive, else ends at its last."""
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
        """The position from which a non-durable subscription continues."""
        taken = self._taken
        if taken is not None:
            if self._chunk is not None:
                return MessageId(*self._chunk)
            ledger_id, entry_id, index = taken
            return MessageId(ledger_id, entry_id, batch_index=index)
        if self._front is not None:
            # With a batch index, the broker begins at the entry itself, not after it.
            return MessageId(*self._front, batch_index=0)
        return self._first

    def lost(self, begins: Iterable[tuple[int, int] | None]) -> None:
        """All untaken messages come again. `begins` are the positions where untaken messages begin,
        complete or not: if a chunked one began before the last taken message, the broker must
        resume from there.
        """
        if self._durable:
            if self._is_reached:
                # The broker was at the start; from now on another client may move the cursor.
                self._first = None
            return
        taken = self._behind = self._taken
        known = [at for at in begins if at is not None]
        if taken is None:
            self._front = min((at for at in (self._front, *known) if at is not None), default=None)
            return
        # A position that the last connection didn't pass still counts.
        known += [] if self._chunk is None else [self._chunk]
        self._chunk = min((at for at in known if at < taken[:2]), default=None)

    def all_again(self) -> None:
        """Accept taken messages again: the program has refused them."""
        self._behind = None

    def is_taken(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the program has taken messages up to that entry."""
        taken = self._taken
        return taken is not None and (ledger_id, entry_id) <= taken[:2]

    @property
    def wants_all(self) -> bool:
        """Whether all that comes is wanted, from its first message on."""
        return self._first is None and self._behind is None

    def first_of(self, entry: Entry) -> int:
        """Index of the entry's first message to deliver; its size if there is none."""
        first = self._first
        behind = self._behind
        if first is None and behind is None:
            return 0
        position = entry.ledger_id, entry.entry_id
        size = entry.message_count
        # A durable subscription's entry with a redelivery count was requested.
        if behind is not None and not entry.redelivery_count:
            if position < behind[:2]:
                # Redelivered because of the chunks around it.
                return 0 if self._chunk is None else size
            self._chunk = self._behind = None
            if position == behind[:2]:
                # A non-durable subscription reconnected: deliver only messages after the taken one.
                # A durable one gets all unacknowledged messages again.
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
        """Whether it begins directly after that entry."""
        first = self._first
        return (
            first is not None
            and not self._inclusive
            and first.batch_index < 0
            and (ledger_id, entry_id) == (first.ledger_id, first.entry_id)
        )

    def taken(self, entry: Entry) -> None:
        """Note that the program took messages of that entry."""
        indexes = entry.indexes
        if entry.at < len(indexes):
            self._current = entry
        else:
            # Don't keep the entry longer than needed: it may be large.
            self._done = entry.ledger_id, entry.entry_id, indexes[-1]
            self._current = None

    def moved(self, to: MessageId | int) -> None:
        """A seek to a message, or to a time: from there on all is delivered."""
        self._first = self._place(to) if isinstance(to, MessageId) else EARLIEST_ID
        self._is_reached = False
        self._done = None
        self._current = None
        self._chunk = self._front = self._behind = None

    def seek_id(self, to: MessageId) -> MessageId:
        """The id to seek to; within a batch its ack set has the messages to deliver."""
        to = self._place(to)
        first = to.batch_index + (0 if self._inclusive else 1)
        if to.batch_index < 0 or first >= to.batch_size:
            return MessageId(to.ledger_id, to.entry_id, to.partition)
        left = from_bits(((1 << to.batch_size) - 1) >> first << first)
        return MessageId(to.ledger_id, to.entry_id, to.partition, ack_set=left)

    def is_behind(self, last: MessageId, mark_delete: MessageId | None) -> bool:
        """Whether the topic's last message is after the last taken one
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


def last_and_mark_delete(
    answer: CommandGetLastMessageIdResponse, partition: int
) -> tuple[MessageId, MessageId | None]:
    """Id of the topic's last message, and the mark-delete position if the broker tells."""
    last = MessageId.from_wire(answer.last_message_id)
    last.partition = partition
    if not answer.HasField("consumer_mark_delete_position"):
        return last, None
    return last, MessageId.from_wire(answer.consumer_mark_delete_position)
