"""The queue of received messages that the program has not taken, and its permits, which bound it
(spec SDK-21). Pure.
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
"""Messages of one entry after which permits are freed at the latest."""


class Permits:
    """Exact account of one consumer's permits: granted to the broker, used by it, and free.

    The broker counts messages but sends whole entries, so it may exceed the permits by less than a
    batch.
    """

    def __init__(self, queue_size: int, *, scaled: bool = False) -> None:
        """A `scaled` queue begins with one message and doubles, up to `queue_size`, whenever the
        program waits and the broker has used all permits since the last growth
        (ConsumerBase.expectMoreIncomingMessages).
        """
        self._size_max = queue_size
        self._was_full = False
        self._resize(min(1, queue_size) if scaled else queue_size)
        self.to_give = 0
        """Free permits, not granted again yet."""
        self.outstanding = 0
        """Granted and not used yet."""

    def _resize(self, queue_size: int) -> None:
        self.queue_size = queue_size
        self.threshold = max(1, queue_size // 2)
        self.step = min(self.threshold, TAKEN_BETWEEN_CALLS)
        """Messages of one entry that may be taken before this counts them."""

    def start(self) -> int:
        """Permits for a new connection: the whole queue."""
        self.to_give = 0
        self.outstanding = self.queue_size
        return self.queue_size

    def used(self, messages: int) -> None:
        """Count messages sent by the broker."""
        self.outstanding -= messages
        if self.outstanding <= 0:
            self._was_full = True

    def released(self, messages: int) -> int:
        """Free permits; returns those to grant now: none below half the queue."""
        self.to_give += messages
        if self.to_give < self.threshold or not self.queue_size:
            return 0
        given, self.to_give = self.to_give, 0
        self.outstanding += given
        return given

    def all_released(self) -> int:
        """A caller waits for as many messages as the queue takes; returns all free permits."""
        given, self.to_give = self.to_give, 0
        self.outstanding += given
        return given

    def demand(self) -> int:
        """A caller waits for a message; returns the permits to grant now: one without a queue, or
        the growth of a scaled queue.
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
    """Entries of all partitions in the order of arrival, taken message by message.

    The permits of its sources bound the messages; with the broker's maximal message size that
    bounds the bytes.
    """

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._parked: dict[Source, list[tuple[int, Entry]]] = {}
        """During successive calls about sources: all entries by source, each with its place, and
        none in `_entries`."""
        self.messages = 0
        """Messages to be taken."""
        self._bytes: int | None = None
        """Bytes of all entries; counted from the first request on."""
        self.on_discard: Callable[[Source, Container[tuple[int, int]] | None], None] | None = None
        """Called with the arguments of `discard`, to drop prefetched messages."""

    def put(self, entry: Entry) -> None:
        """Add an entry with at least one message to deliver."""
        assert entry.indexes, "an entry without messages would never be taken"
        if self._parked:
            self._unpark()
        self._entries.append(entry)
        self.messages += len(entry.indexes)
        if self._bytes is not None:
            self._bytes += entry.size_between(0, len(entry.indexes))

    def put_all(self, entries: Sequence[Entry]) -> None:
        """The same for entries of one message each."""
        if self._parked:
            self._unpark()
        self._entries.extend(entries)
        self.messages += len(entries)
        if self._bytes is not None:
            self._bytes += sum(len(each.payload) for each in entries)

    def has(self, messages: int, size_bytes: float) -> bool:
        """Whether it has that many messages, or bytes of payload."""
        if self.messages >= messages or size_bytes == math.inf:
            return self.messages >= messages
        self._unpark()
        if self._bytes is None:
            self._bytes = sum(each.size_between(0, len(each.indexes)) for each in self._entries)
        if not self._entries:
            return False
        # Only the first one can be partly taken.
        head = self._entries[0]
        return self._bytes - head.size_between(0, head.at) >= size_bytes

    def _park(self) -> dict[Source, list[tuple[int, Entry]]]:
        """One pass for all sources: after a lost connection each partition queries and discards."""
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
        """The next message, or None."""
        if not self.messages:
            return None
        try:
            entry = self._entries[0]
        except IndexError:
            entry = self._unpark()[0]
        self.messages -= 1
        if entry.bounds is None:
            # One message, and most of those that aren't in batches.
            self._entries.popleft()
            entry.at = 1
            if self._bytes is not None:
                self._leave(entry)
            entry.source.taken(entry)
            return Message(entry, -1)
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
        """Messages up to both limits, at least one if there is any."""
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
                # The limit is reached.
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
        """Whole entries (of a partly taken one the rest) up to that many bytes, at least one if
        there is any.
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
        """Whether it has a message of that source."""
        if self._parked:
            return source in self._parked
        return any(entry.source is source for entry in self._entries)

    def begin_of(self, source: Source) -> tuple[int, int] | None:
        """The position where the source's first message begins."""
        own = self._park().get(source, ())
        return min((begin_of(entry) for _, entry in own), default=None)

    def waiting_of(self, source: Source) -> tuple[int, int, int]:
        """The source's number of messages, and the taken messages and bytes not yet reported to
        it.
        """
        waiting = taken = size_bytes = 0
        for _, entry in self._park().get(source, ()):
            waiting += len(entry.indexes) - entry.at
            taken += entry.at - entry.released
            if entry.at > entry.released:
                size_bytes += entry.size_between(entry.released, entry.at)
        return waiting, taken, size_bytes

    def waiting_bytes_of(self, source: Source) -> int:
        """Bytes of the source's messages."""
        own = self._park().get(source, ())
        return sum(entry.size_between(entry.at, len(entry.indexes)) for _, entry in own)

    def discard(
        self,
        source: Source,
        positions: Container[tuple[int, int]] | None = None,
        *,
        recalls: bool = True,
    ) -> int:
        """Drop the source's messages, or only those of the given entries; returns the number of
        messages that the permits must count as gone. With `recalls` (taken messages come again) it
        also drops prefetched ones.
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
    """Ledger and entry where an entry's message begins: its first chunk's."""
    return entry.chunks[0] if entry.chunks else (entry.ledger_id, entry.entry_id)


def _within(entry: Entry, indexes: Sequence[int], bytes_max: float) -> Sequence[int]:
    """The first of those messages that together are within the bound."""
    for n, index in enumerate(indexes):
        bytes_max -= entry.size_of(index)
        if bytes_max < 0:
            return indexes[:n]
    return indexes


class InterceptedInbox(Inbox):
    """An inbox that passes taken messages to the program's interceptors."""

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
