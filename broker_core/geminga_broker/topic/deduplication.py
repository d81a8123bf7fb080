"""Deduplication: a message that a producer resends is stored once (spec BR-21; Apache's
`MessageDeduplication`).

For each producer name it keeps the highest sequence id passed to storage and the highest stored
one. The latter are saved as the properties of a cursor, at the position up to which they are valid;
after a restart they are read back and the entries after that position replayed. All but opening and
closing is synchronous and works per run of entries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import islice

from geminga_broker.limits import NAME_BYTES_MAX, is_longer
from geminga_broker.log.api import Cursor, CursorNotFound, Entry, EntryDamaged, ManagedLedger
from geminga_broker.log.reserved_cursors import DEDUPLICATION
from geminga_broker.policies.model import DeduplicationOptions
from geminga_broker.topic.api import PublishItem
from geminga_broker.topic.publish_run import Sent
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import LATEST, Position
from geminga_protocol.messages import text
from geminga_protocol.payload import parse_head
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata

_log = logging.getLogger(__name__)

_REPLAY_ENTRIES_MAX = 1000
_REPLAY_BYTES_MAX = 5 << 20


class Duplicate(tuple[int, int, int]):
    """A `Sent` that isn't stored again; its receipt, in order, has position -1:-1."""

    __slots__ = ()


class EarlierChunk(tuple[int, int, int]):
    """A `Sent` that is a chunk, but not the last one: its sequence id isn't stored with it yet."""

    __slots__ = ()


class Fate(Enum):
    """State of a duplicate's original."""

    STORED = "stored"
    PENDING = "pending"
    LOST = "lost"


class Deduplication:
    """The sequence ids of one topic. Made by `open_deduplication`."""

    def __init__(self, cursor: Cursor, options: DeduplicationOptions, now_s: float) -> None:
        self.waiting: dict[Callable[[], None], None] = {}
        """Callbacks of producers that wait until a duplicate's original is stored or lost."""
        self._cursor = cursor
        self._options = options
        self._stored: dict[str, int] = dict(cursor.properties)
        self._pushed: dict[str, int] = dict(self._stored)
        self._left: dict[str, float] = dict.fromkeys(self._stored, now_s)
        self._since_snapshot = 0
        self._purged_s = now_s
        self._seen = cursor.mark_delete

    def replay(self, entry: Entry, now_s: float) -> None:
        """Replay an entry after the snapshot."""
        self._seen = entry.position
        self._since_snapshot += 1
        try:
            metadata = entry.head
        except RemoteProtocolError:
            return
        if _is_earlier_chunk(metadata):
            return
        name = text(metadata.producer_name)
        if is_longer(name, NAME_BYTES_MAX):
            return  # no producer has that name, and it would be stored with the snapshot
        highest = max(signed(metadata.sequence_id), signed(metadata.highest_sequence_id))
        self._stored[name] = self._pushed[name] = max(highest, self._stored.get(name, highest))
        self._left[name] = now_s

    def stored(self, name: str) -> int:
        """The highest stored sequence id of a producer, -1 without any."""
        return self._stored.get(name, -1)

    def fate(self, name: str, duplicate: Sent) -> Fate:
        """The state of a duplicate's original."""
        sequence_id = signed(duplicate[0])
        last = self._stored.get(name)
        if last is not None and sequence_id <= last:
            return Fate.STORED
        last = self._pushed.get(name)
        return Fate.PENDING if last is not None and sequence_id <= last else Fate.LOST

    def take(self, name: str, item: PublishItem) -> Sent:
        """Classify a SEND: new (a plain tuple) or an earlier chunk, which must be appended now, or
        a Duplicate.
        """
        sent = (item.sequence_id, item.highest_sequence_id, len(item.payload))
        sequence_id = signed(item.sequence_id)
        last = self._pushed.get(name)
        if last is not None and sequence_id <= last:
            return Duplicate(sent)
        if item.is_chunk:
            try:
                if _is_earlier_chunk(parse_head(item.payload)):
                    return EarlierChunk(sent)
            except RemoteProtocolError:
                pass
        self._pushed[name] = max(sequence_id, signed(item.highest_sequence_id))
        return sent

    def record(self, name: str, run: Sequence[Sent], last: Position, entries: int) -> None:
        """A run of a producer's entries is stored, up to `last`. Call it in the order of the log;
        an empty run only advances the position.
        """
        for sent in reversed(run):
            if type(sent) is tuple:
                # Sequence ids ascend, so this is the run's highest complete one.
                highest = max(signed(sent[0]), signed(sent[1]))
                self._stored[name] = max(highest, self._stored.get(name, highest))
                self._pushed[name] = max(highest, self._pushed.get(name, highest))
                break
        self._seen = last
        self._since_snapshot += entries
        if self._since_snapshot >= self._options.entries_interval:
            self.snapshot()
        if self.waiting:
            self.answer_waiting()

    def answer_waiting(self) -> None:
        """Call the producers whose duplicates wait for originals."""
        for answer_duplicates in list(self.waiting):
            answer_duplicates()

    def failed(self, name: str) -> None:
        """A producer's write failed: accept again what is not stored."""
        if name in self._stored:
            self._pushed[name] = self._stored[name]
        else:
            self._pushed.pop(name, None)
        self.answer_waiting()

    def snapshot(self) -> None:
        """Take a snapshot of the stored sequence ids, if any is new; durable with the cursor's next
        write.
        """
        if not self._since_snapshot:
            return
        self._since_snapshot = 0
        surplus = max(0, len(self._stored) - self._options.producers_max)
        for name in list(islice(self._left, surplus)):
            self._forget(name)
        self._cursor.ack_cumulative(self._seen, properties=self._stored)

    def added(self, name: str) -> None:
        """A producer has connected."""
        self._left.pop(name, None)

    def removed(self, name: str, now_s: float) -> None:
        """A producer left."""
        if name in self._pushed:
            self._left.pop(name, None)
            self._left[name] = now_s

    def purge(self, now_s: float, interval_s: float = 0) -> None:
        """Forget producers that left too long ago, and take a snapshot, at most once in
        `interval_s`.
        """
        if now_s - self._purged_s < interval_s:
            return
        self._purged_s = now_s
        for name, left_s in list(self._left.items()):
            if now_s - left_s >= self._options.inactivity_s:
                self._forget(name)
                self._since_snapshot += 1
        self.snapshot()

    def _forget(self, name: str) -> None:
        del self._left[name]
        self._stored.pop(name, None)
        self._pushed.pop(name, None)


def _is_earlier_chunk(metadata: MessageMetadata) -> bool:
    return metadata.num_chunks_from_msg > 1 and metadata.chunk_id < metadata.num_chunks_from_msg - 1


def signed(sequence_id: int) -> int:
    """A sequence id as a signed number, as in Java clients; unsigned on the wire."""
    return sequence_id if sequence_id < 1 << 63 else sequence_id - (1 << 64)


async def open_deduplication(
    log: ManagedLedger, options: DeduplicationOptions, now_s: float
) -> Deduplication:
    """Open it from the last snapshot and the entries after it; without a snapshot, from now on.

    On return it knows the whole log: the caller must install it before the next checkpoint. Raises
    LogError.
    """
    cursor = await log.open_cursor(DEDUPLICATION, initial=LATEST)
    cursor.rewind()
    made = Deduplication(cursor, options, now_s)
    replayed = damaged = 0
    wanted = _REPLAY_ENTRIES_MAX
    while cursor.available():
        try:
            entries = await cursor.read(entries_max=wanted, bytes_max=_REPLAY_BYTES_MAX)
        except EntryDamaged as error:
            if wanted > 1:
                wanted = max(1, wanted // 32)
                continue
            if not damaged:
                _log.warning("log=%s: damaged entries aren't replayed: %s", log.name, error)
            damaged += 1
            cursor.read_position = log.next_position(cursor.read_position)
            continue
        for entry in entries:
            made.replay(entry, now_s)
        replayed += len(entries)
        wanted = min(_REPLAY_ENTRIES_MAX, wanted * 2)
    if damaged:
        text = "log=%s: %d entries could not be replayed: what they hold may be stored once more"
        _log.warning(text, log.name, damaged)
    if replayed:
        _log.info("log=%s: %d entries replayed for deduplication", log.name, replayed)
    return made


async def drop_deduplication(log: ManagedLedger) -> None:
    """Delete the snapshots, if there are any. Raises LogError."""
    if DEDUPLICATION in log.cursors:
        try:
            await log.delete_cursor(DEDUPLICATION)
        except CursorNotFound:
            pass
