"""What a consumer has received and not yet handed out, and the permits that keep it bounded (spec
SDK-21). Pure.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Sequence
from itertools import chain
from operator import itemgetter

from geminga._entries.entry import Entry, Source
from geminga.entry_batch import EntryBatch
from geminga.message import Message

TAKEN_BETWEEN_CALLS = 64
"""Messages of one entry after which permits are given back at the latest."""


class Permits:
    """Exact account of one consumer's permits: given to the broker, used by it, and to give back.

    The broker counts messages, whatever entries they come in, so it may use more than it was given
    by less than a batch.
    """

    def __init__(self, queue_size: int, *, scaled: bool = False) -> None:
        """A `scaled` queue begins with one message and doubles, up to `queue_size`, whenever the
        program waits for messages though the broker has used all permits since it last grew
        (ConsumerBase.expectMoreIncomingMessages).
        """
        self._size_max = queue_size
        self._was_full = False
        self._resize(min(1, queue_size) if scaled else queue_size)
        self.to_give = 0
        """Came back and not given again yet."""
        self.outstanding = 0
        """Given and not used yet."""

    def _resize(self, queue_size: int) -> None:
        self.queue_size = queue_size
        self.threshold = max(1, queue_size // 2)
        self.step = min(self.threshold, TAKEN_BETWEEN_CALLS)
        """Messages of one entry that may be taken before it is told."""

    def start(self) -> int:
        """Permits for a fresh attachment: the whole queue."""
        self.to_give = 0
        self.outstanding = self.queue_size
        return self.queue_size

    def used(self, messages: int) -> None:
        """The broker sent that many."""
        self.outstanding -= messages
        if self.outstanding <= 0:
            self._was_full = True

    def released(self, messages: int) -> int:
        """That many left the queue; returns what to give now: nothing until it's half the queue."""
        self.to_give += messages
        if self.to_give < self.threshold or not self.queue_size:
            return 0
        given, self.to_give = self.to_give, 0
        self.outstanding += given
        return given

    def all_released(self) -> int:
        """Somebody waits for as many messages as the queue takes; returns what is still to give."""
        given, self.to_give = self.to_give, 0
        self.outstanding += given
        return given

    def demand(self) -> int:
        """Somebody waits for a message; returns what to give now: one without a queue, and what a
        scaled queue grows by.
        """
        if self.queue_size < self._size_max and self._was_full:
            self._was_full = False
            grown = min(self.queue_size, self._size_max - self.queue_size)
            self._resize(self.queue_size + grown)
            self.outstanding += grown
            return grown
        if self.queue_size or self.outstanding > 0:
            return 0
        given = 1 - self.outstanding
        self.outstanding = 1
        return given


class Inbox:
    """Entries in the order of their arrival, over all partitions, taken message by message.

    Bounded by the permits that its sources give: messages, and so at most the broker's largest
    message size times that.
    """

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._parked: dict[Source, list[tuple[int, Entry]]] = {}
        """All entries by their sources, each with its place, while sources are asked about one
        after the other; none is in `_entries` then."""
        self.messages = 0
        """To be handed out."""
        self._bytes: int | None = None
        """Of all entries that are here; reckoned from when somebody asks for the first time."""
        self.on_discard: Callable[[Source, Container[tuple[int, int]] | None], None] | None = None
        """Called with what `discard` is called with: who took messages ahead lets go of them."""

    def put(self, entry: Entry) -> None:
        """Add an entry with at least one message to deliver."""
        assert entry.indexes, "an entry without messages would never be taken"
        if self._parked:
            self._unpark()
        self._entries.append(entry)
        self.messages += len(entry.indexes)
        if self._bytes is not None:
            self._bytes += entry.size_between(0, len(entry.indexes))

    def has(self, messages: int, size_bytes: float) -> bool:
        """Whether that many messages wait, or that many bytes of payload."""
        if self.messages >= messages or size_bytes == math.inf:
            return self.messages >= messages
        self._unpark()
        if self._bytes is None:
            self._bytes = sum(each.size_between(0, len(each.indexes)) for each in self._entries)
        if not self._entries:
            return False
        # Only the first one can have been taken in part.
        head = self._entries[0]
        return self._bytes - head.size_between(0, head.at) >= size_bytes

    def _park(self) -> dict[Source, list[tuple[int, Entry]]]:
        """One walk for all sources: of a lost connection each partition asks and discards."""
        if self._entries:
            for place, entry in enumerate(self._entries):
                self._parked.setdefault(entry.source, []).append((place, entry))
            self._entries.clear()
        return self._parked

    def _unpark(self) -> deque[Entry]:
        if self._parked:
            parked, self._parked = self._parked, {}
            placed = sorted(chain.from_iterable(parked.values()), key=itemgetter(0))
            self._entries.extend(entry for _, entry in placed)
        return self._entries

    def _leave(self, entry: Entry) -> None:
        if self._bytes is not None:
            self._bytes -= entry.size_between(0, len(entry.indexes))

    def take(self) -> Message | None:
        """The next message, None if there is none."""
        if not self.messages:
            return None
        try:
            entry = self._entries[0]
        except IndexError:
            entry = self._unpark()[0]
        self.messages -= 1
        at = entry.at
        message = Message(entry, entry.indexes[at])
        entry.at = at = at + 1
        if at == len(entry.indexes):
            self._entries.popleft()
            if self._bytes is not None:
                self._leave(entry)
            entry.source.taken(entry)
        elif at == entry.at_call:
            entry.at_call = entry.source.taken(entry)
        return message

    def take_many(self, messages_max: int, bytes_max: float) -> list[Message]:
        """Up to that many messages and bytes, but one in any case if there is one."""
        taken: list[Message] = []
        self._unpark()
        while self._entries and len(taken) < messages_max:
            entry = self._entries[0]
            indexes = entry.indexes
            at = entry.at
            wanted = indexes[at : at + messages_max - len(taken)]
            size_bytes = entry.size_of_all(wanted)
            if size_bytes > bytes_max:
                wanted = _within(entry, wanted, bytes_max)
                if not wanted:
                    if taken:
                        break
                    wanted = indexes[at : at + 1]
                # Whatever comes next is too much.
                bytes_max = -1
            else:
                bytes_max -= size_bytes
            taken += [Message(entry, index) for index in wanted]
            self.messages -= len(wanted)
            entry.at = at = at + len(wanted)
            if at == len(indexes):
                self._entries.popleft()
                self._leave(entry)
            entry.at_call = entry.source.taken(entry)
            if bytes_max < 0:
                break
        return taken

    def take_entries(self, bytes_max: float) -> list[EntryBatch]:
        """Whole entries (of one that was taken in part, the rest) with up to that many bytes, but
        one in any case if there is one.
        """
        taken: list[EntryBatch] = []
        entries = self._unpark()
        while entries:
            entry = entries[0]
            indexes = entry.indexes[entry.at :] if entry.at else entry.indexes
            if bytes_max != math.inf:
                bytes_max -= entry.size_between(entry.at, len(entry.indexes))
                if bytes_max < 0 and taken:
                    break
            taken.append(EntryBatch(entry, indexes))
            entries.popleft()
            self.messages -= len(indexes)
            entry.at = len(entry.indexes)
            if self._bytes is not None:
                self._leave(entry)
            entry.source.taken(entry)
        return taken

    def holds(self, source: Source) -> bool:
        """Whether a message that came by that source waits."""
        if self._parked:
            return source in self._parked
        return any(entry.source is source for entry in self._entries)

    def begin_of(self, source: Source) -> tuple[int, int] | None:
        """Where the first of the messages that wait begins, of those by that source."""
        own = self._park().get(source, ())
        return min((begin_of(entry) for _, entry in own), default=None)

    def waiting_of(self, source: Source) -> tuple[int, int, int]:
        """Messages that came by that source and wait, and messages and bytes of them that were
        taken without the source being told yet.
        """
        waiting = taken = size_bytes = 0
        for _, entry in self._park().get(source, ()):
            waiting += len(entry.indexes) - entry.at
            taken += entry.at - entry.released
            if entry.at > entry.released:
                size_bytes += entry.size_between(entry.released, entry.at)
        return waiting, taken, size_bytes

    def discard(
        self,
        source: Source,
        positions: Container[tuple[int, int]] | None = None,
        *,
        recalls: bool = True,
    ) -> int:
        """Throw away what came by that source, of those entries only if any are named; returns how
        many messages the permits don't know to have left. It `recalls` what was taken ahead of the
        program, unless what was taken doesn't come again.
        """
        if recalls and self.on_discard is not None:
            self.on_discard(source, positions)
        kept: list[tuple[int, Entry]] = []
        released = 0
        for place, entry in self._park().pop(source, ()):
            if positions is None or (entry.ledger_id, entry.entry_id) in positions:
                self.messages -= len(entry.indexes) - entry.at
                released += len(entry.indexes) - entry.released
                self._leave(entry)
            else:
                kept.append((place, entry))
        if kept:
            self._parked[source] = kept
        return released


def begin_of(entry: Entry) -> tuple[int, int]:
    """Ledger and entry where a message of an entry begins: in chunks, the first one's."""
    return entry.chunks[0] if entry.chunks else (entry.ledger_id, entry.entry_id)


def _within(entry: Entry, indexes: Sequence[int], bytes_max: float) -> Sequence[int]:
    """The first of those messages that have no more than so many bytes."""
    for n, index in enumerate(indexes):
        bytes_max -= entry.size_of(index)
        if bytes_max < 0:
            return indexes[:n]
    return indexes


class InterceptedInbox(Inbox):
    """One whose messages pass the program's interceptors when they are taken."""

    def __init__(self, before_consume: Callable[[Message], Message]) -> None:
        super().__init__()
        self._before_consume = before_consume

    def take(self) -> Message | None:
        """As Inbox.take."""
        message = super().take()
        return None if message is None else self._before_consume(message)

    def take_many(self, messages_max: int, bytes_max: float) -> list[Message]:
        """As Inbox.take_many."""
        return [self._before_consume(each) for each in super().take_many(messages_max, bytes_max)]
