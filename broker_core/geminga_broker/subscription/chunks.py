"""Chunks of one message go to one consumer of a Shared or Key_Shared subscription: pure.

Follows SharedConsumerAssignor: who gets the first chunk of a message gets them all; those that it
can't take yet wait for it, while others get what comes after them. When it leaves, all goes to the
next. On Key_Shared the chunks have one hash; it stays where it is until the message is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Generic, NamedTuple

from sortedcontainers import SortedSet

from geminga_broker.log.api import Entry
from geminga_broker.subscription.special_metadata import special_metadata
from geminga_broker.subscription.state import M
from geminga_broker.subscription.strategies.choose import RoundRobin
from geminga_protocol.ids import Position

OWNERS_MAX = 10_000
"""Messages whose last chunk is yet to come, and as many that are whole; beyond it the oldest may be
split, as those are whose producer never ended them.
"""

PARKED_MAX = 10_000
"""Chunks that wait for their consumer; nothing new is read beyond it."""


class Chunk(NamedTuple):
    """What counts of an entry that is a chunk."""

    message: int
    """Hash of the message's uuid."""
    number: int
    """From 0."""
    last: bool


class Given(NamedTuple):
    """What became of a batch."""

    end: int
    """All before it are done with; from there on nobody could take them."""
    again: list[Position]
    """Chunks before it that have to wait for entries that are queued for replay."""


def chunks_in(entries: Sequence[Entry]) -> dict[int, Chunk]:
    """The chunks among entries by index; few are parsed that are none."""
    found: dict[int, Chunk] = {}
    for index, entry in enumerate(entries):
        metadata = special_metadata(entry.data)
        if metadata is None or not metadata.uuid or not metadata.HasField("chunk_id"):
            continue
        number, count = metadata.chunk_id, metadata.num_chunks_from_msg
        if count > 1:
            found[index] = Chunk(hash(metadata.uuid), number, number >= count - 1)
    return found


class ChunkKeeper(Generic[M]):
    """Who gets the chunks of which message, and which wait for them."""

    __slots__ = ("_owners", "_parked", "_turns", "_whole")

    def __init__(self, turns: RoundRobin) -> None:
        self._turns = turns
        self._owners: dict[int, M] = {}
        """Consumers by message, from the first chunk that is sent to the last."""
        self._whole: dict[int, M] = {}
        """Who got the last chunk: what a producer sent twice goes there too, for only that client
        knows what it is."""
        self._parked: dict[M, SortedSet[Position]] = {}

    def __len__(self) -> int:
        """How many chunks wait."""
        return sum(map(len, self._parked.values())) if self._parked else 0

    @property
    def full(self) -> bool:
        """Whether nothing new should be read."""
        return len(self) >= PARKED_MAX

    def take_due(self) -> list[Position]:
        """What waits for consumers that can go on, as far as they have room; no longer kept."""
        due: list[Position] = []
        for consumer, parked in list(self._parked.items()):
            if consumer.ready:
                due += [parked.pop(0) for _ in range(min(consumer.room, len(parked)))]
                if not parked:
                    del self._parked[consumer]
        return due

    def discard(self, position: Position) -> None:
        """It was acknowledged."""
        if any(position in parked for parked in self._parked.values()):
            self.discard_where(position.__eq__)

    def discard_where(self, gone: Callable[[Position], bool]) -> None:
        """Those were acknowledged."""
        for consumer, parked in list(self._parked.items()):
            for position in [each for each in parked if gone(each)]:
                parked.remove(position)
            if not parked:
                del self._parked[consumer]

    def forget(self, consumer: M) -> list[Position]:
        """A consumer left: what waits for it may go to others."""
        for owners in (self._owners, self._whole):
            for message in [each for each, owner in owners.items() if owner is consumer]:
                del owners[message]
        return list(self._parked.pop(consumer, ()))

    def clear_parked(self) -> None:
        """They are read again."""
        self._parked.clear()

    def give_out(
        self,
        items: Sequence[tuple[Position, int]],
        chunks: Mapping[int, Chunk],
        consumers: Sequence[M],
        send: Callable[[M, int, int], None],
        waits: Position | None,
    ) -> Given:
        """Give out entries (position, messages), of which some are chunks, in order.

        `send` sends a run to a consumer, whose room is less at once. `waits` is the first position
        that is queued for replay: no chunk may pass it but the first of a message.
        """
        again: list[Position] = []
        able = {consumer for consumer in consumers if consumer.ready}
        at = 0
        for start in [*sorted(chunks), len(items)]:
            if at < start:
                done = at
                runs = self._turns.assign([messages for _, messages in items[at:start]], consumers)
                for consumer, first, end in runs:
                    done = at + end
                    send(consumer, at + first, done)
                if done < start:
                    return Given(done, again)
            if start == len(items):
                break
            at = start + 1
            position, messages = items[start]
            chunk = chunks[start]
            if chunk.number and waits is not None and position > waits:
                again.append(position)
                continue
            owner = self._owner(chunk)
            fresh = owner is None
            if owner is None:
                runs = self._turns.assign([messages], consumers)
                owner = runs[0][0] if runs else None
            # Nothing that waits comes before a message that begins.
            if owner is not None and (fresh or self._may_get(owner, position, able)):
                send(owner, start, at)
                self._note(chunk, owner)
            elif owner is None or not any(c in able and c.room > 0 for c in consumers):
                return Given(start, again)
            else:
                self._parked.setdefault(owner, SortedSet()).add(position)
        return Given(len(items), again)

    def _owner(self, chunk: Chunk) -> M | None:
        """Who has the message, or had all of it; None if it begins."""
        owner = self._owners.get(chunk.message)
        if owner is None and chunk.number:
            return self._whole.get(chunk.message)
        return owner

    def _may_get(self, owner: M, position: Position, able: Container[M]) -> bool:
        """Whether it has room, and nothing before this waits for it."""
        parked = self._parked.get(owner)
        return owner in able and owner.room > 0 and (not parked or position < parked[0])

    def _note(self, chunk: Chunk, owner: M) -> None:
        """A chunk is sent."""
        if chunk.last:
            self._owners.pop(chunk.message, None)
            owners = self._whole
        elif chunk.number and chunk.message in self._whole:
            return
        else:
            self._whole.pop(chunk.message, None)
            owners = self._owners
        owners[chunk.message] = owner
        if len(owners) > OWNERS_MAX:
            del owners[next(iter(owners))]


class UnfinishedMessages:
    """Key_Shared: hashes of which a consumer holds a message's first chunks. Bounded by what is
    sent and not acknowledged.
    """

    __slots__ = ("_begun", "_first", "_hashes")

    def __init__(self) -> None:
        self._begun: dict[int, Position] = {}
        """Messages, with the first of their chunks that was sent."""
        self._first: dict[Position, tuple[int, int]] = {}
        """The same the other way: message, hash."""
        self._hashes: dict[int, int] = {}
        """How many messages of a hash."""

    def __len__(self) -> int:
        return len(self._begun)

    def __contains__(self, key_hash: int) -> bool:
        return key_hash in self._hashes

    def sent(self, position: Position, key_hash: int, chunk: Chunk) -> None:
        """A chunk is sent to who holds its hash."""
        begun = self._begun.get(chunk.message)
        if chunk.last:
            if begun is not None:
                self.release(begun)
        elif begun is None:
            self._begun[chunk.message] = position
            self._first[position] = chunk.message, key_hash
            self._hashes[key_hash] = self._hashes.get(key_hash, 0) + 1

    def release(self, position: Position) -> None:
        """An entry is acknowledged or given back: nobody waits for the rest of its message."""
        found = self._first.pop(position, None)
        if found is None:
            return
        message, key_hash = found
        del self._begun[message]
        self._hashes[key_hash] -= 1
        if not self._hashes[key_hash]:
            del self._hashes[key_hash]

    def clear(self) -> None:
        """Nobody holds anything any more."""
        for kept in (self._begun, self._first, self._hashes):
            kept.clear()
