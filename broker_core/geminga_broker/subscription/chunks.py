"""Chunks of one message go to one consumer of a Shared or Key_Shared subscription: pure.

Follows SharedConsumerAssignor: the consumer that gets the first chunk of a message gets them all.
Chunks that it has no permits for wait; other consumers get the entries behind them. If it leaves,
its chunks go to another. On Key_Shared all chunks have one hash, which isn't moved before the
message is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Generic, NamedTuple

from sortedcontainers import SortedSet

from geminga_broker.log.api import Entry
from geminga_broker.subscription.state import M
from geminga_broker.subscription.strategies.choose import RoundRobin
from geminga_protocol.ids import Position

OWNERS_MAX = 10_000
"""Bound of incomplete messages, and of complete ones, with a known consumer. Above it the oldest
may be split between consumers: usually their producer failed before the last chunk.
"""

PARKED_MAX = 10_000
"""Bound of chunks that wait for their consumer; no new entries are read beyond it."""


class Chunk(NamedTuple):
    """The fields of a chunk that dispatch needs."""

    message: int
    """Hash of the message's uuid."""
    number: int
    """From 0."""
    last: bool


def chunks_in(entries: Sequence[Entry]) -> dict[int, Chunk]:
    """The chunks among entries, by index. Parses few other entries."""
    found: dict[int, Chunk] = {}
    for index, entry in enumerate(entries):
        metadata = entry.special
        if metadata is None or not metadata.uuid or not metadata.HasField("chunk_id"):
            continue
        number, count = metadata.chunk_id, metadata.num_chunks_from_msg
        if count > 1:
            found[index] = Chunk(hash(metadata.uuid), number, number >= count - 1)
    return found


class ChunkKeeper(Generic[M]):
    """The consumer of each chunked message, and the chunks that wait for their consumers."""

    __slots__ = ("_owners", "_parked", "_turns", "_whole")

    def __init__(self, turns: RoundRobin) -> None:
        self._turns = turns
        self._owners: dict[int, M] = {}
        """Consumers by message, from the first chunk that is sent to the last."""
        self._whole: dict[int, M] = {}
        """Consumers of complete messages: they also get duplicate chunks, as only that client can
        detect them."""
        self._parked: dict[M, SortedSet[Position]] = {}

    def __len__(self) -> int:
        """Number of waiting chunks."""
        return sum(map(len, self._parked.values())) if self._parked else 0

    @property
    def full(self) -> bool:
        """Whether no new entries should be read."""
        return len(self) >= PARKED_MAX

    def take_due(self) -> list[Position]:
        """Take out the chunks whose consumers have room for them now."""
        due: list[Position] = []
        for consumer, parked in list(self._parked.items()):
            if consumer.ready:
                due += [parked.pop(0) for _ in range(min(consumer.room, len(parked)))]
                if not parked:
                    del self._parked[consumer]
        return due

    def discard(self, position: Position) -> None:
        """Drop a chunk that was acknowledged."""
        if any(position in parked for parked in self._parked.values()):
            self.discard_where(position.__eq__)

    def discard_where(self, gone: Callable[[Position], bool]) -> None:
        """Drop chunks that were acknowledged."""
        for consumer, parked in list(self._parked.items()):
            for position in [each for each in parked if gone(each)]:
                parked.remove(position)
            if not parked:
                del self._parked[consumer]

    def forget(self, consumer: M) -> list[Position]:
        """A consumer left; returns the chunks that waited for it."""
        for owners in (self._owners, self._whole):
            for message in [each for each, owner in owners.items() if owner is consumer]:
                del owners[message]
        return list(self._parked.pop(consumer, ()))

    def clear_parked(self) -> None:
        """Drop all waiting chunks: they are read again."""
        self._parked.clear()

    def give_out(
        self,
        items: Sequence[tuple[Position, int]],
        chunks: Mapping[int, Chunk],
        consumers: Sequence[M],
        send: Callable[[M, int, int], None],
        waits: Position | None,
    ) -> tuple[int, list[Position]]:
        """Give out entries (position, messages), some of them chunks, in order. Returns the index
        of the first entry that no consumer can take, and the chunks before it that must wait for
        entries in the replay queue.

        `send` sends a run to a consumer and lowers its room at once. `waits` is the first position
        in the replay queue: only the first chunk of a message may pass it.
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
                    return done, again
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
            # No waiting chunk belongs before the first one of a message.
            if owner is not None and (fresh or self._may_get(owner, position, able)):
                send(owner, start, at)
                self._note(chunk, owner)
            elif owner is None or not any(c in able and c.room > 0 for c in consumers):
                return start, again
            else:
                self._parked.setdefault(owner, SortedSet()).add(position)
        return len(items), again

    def _owner(self, chunk: Chunk) -> M | None:
        """The consumer that has chunks of the message; None if this is the first."""
        owner = self._owners.get(chunk.message)
        if owner is None and chunk.number:
            return self._whole.get(chunk.message)
        return owner

    def _may_get(self, owner: M, position: Position, able: Container[M]) -> bool:
        """Whether it has room, and no earlier chunk waits for it."""
        parked = self._parked.get(owner)
        return owner in able and owner.room > 0 and (not parked or position < parked[0])

    def _note(self, chunk: Chunk, owner: M) -> None:
        """Record that a chunk is sent."""
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
    """Key_Shared: hashes of incomplete messages whose first chunks a consumer holds. Bounded by the
    unacknowledged entries.
    """

    __slots__ = ("_begun", "_first", "_hashes")

    def __init__(self) -> None:
        self._begun: dict[int, Position] = {}
        """First chunk that was sent of each message."""
        self._first: dict[Position, tuple[int, int]] = {}
        """Message and hash of each such chunk."""
        self._hashes: dict[int, int] = {}
        """Number of messages by hash."""

    def __len__(self) -> int:
        return len(self._begun)

    def __contains__(self, key_hash: int) -> bool:
        return key_hash in self._hashes

    def sent(self, position: Position, key_hash: int, chunk: Chunk) -> None:
        """Record that a chunk is sent to the holder of its hash."""
        begun = self._begun.get(chunk.message)
        if chunk.last:
            if begun is not None:
                self.release(begun)
        elif begun is None:
            self._begun[chunk.message] = position
            self._first[position] = chunk.message, key_hash
            self._hashes[key_hash] = self._hashes.get(key_hash, 0) + 1

    def release(self, position: Position) -> None:
        """An entry is acknowledged or given back: its message no longer keeps the hash."""
        found = self._first.pop(position, None)
        if found is None:
            return
        message, key_hash = found
        del self._begun[message]
        self._hashes[key_hash] -= 1
        if not self._hashes[key_hash]:
            del self._hashes[key_hash]

    def clear(self) -> None:
        """Forget all: no entry is held."""
        for kept in (self._begun, self._first, self._hashes):
            kept.clear()
