"""Assembles large messages from their chunks (spec SDK-05, PIP-37; ConsumerImpl.
processMessageChunk of the Java client). Pure; clocks are passed in.

Chunks of one message arrive in order, those of several producers interleaved. Memory is the really
received bytes, of at most `messages_max` messages, each up to CHUNKED_MESSAGE_BYTES_MAX.

A uuid, made of a producer's name and a sequence id, doesn't identify a message: a new producer with
the same name counts from 0 again, and redelivered chunks of its predecessor may come in between.
The publish time tells them apart: a producer that resends a message after a lost connection keeps
it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from geminga_protocol.chunking import Chunk

Position = tuple[int, int]

CHUNKED_MESSAGE_BYTES_MAX = 512 * 1024 * 1024
"""A chunked message that announces a larger size is refused."""
SEQUENCES_MAX = 100_000
"""Bound of remembered chunks of delivered, unacknowledged messages. The oldest message's are
forgotten: an acknowledgement by its id is then for its last chunk only."""
WHOLE_MAX = 1000
"""Bound of remembered complete messages, to recognize their chunks if they come again."""
INCOMPLETE_MAX = 10_000
"""Bound of remembered last chunks of incomplete messages; the oldest is forgotten."""


class PendingMessage:
    """The received chunks of one message."""

    __slots__ = ("began_s", "first", "parts", "positions", "published_ms", "size_bytes", "start")

    def __init__(self, first: Chunk, start: Position, published_ms: int, began_s: float) -> None:
        self.first = first
        self.start = start
        self.published_ms = published_ms
        self.began_s = began_s
        self.parts: list[bytes] = []
        self.positions: list[Position] = []
        self.size_bytes = 0

    def may_have(self, chunk: Chunk, position: Position) -> bool:
        """Whether the chunk may belong to it."""
        return self.start <= position and self.first[2:] == chunk[2:]


class Chunks:
    """All incomplete messages of one consumer.

    `to_acknowledge`: chunks of permanently dropped messages; the caller empties it.
    """

    def __init__(
        self,
        messages_max: int,
        expire_s: float,
        acknowledge_oldest: bool,
        now_ms: Callable[[], int],
        *,
        gets_all: bool = False,
    ) -> None:
        """`messages_max=0`: no bound; `expire_s=0`: never. `gets_all`: whatever is not acknowledged
        comes to this consumer, in order.
        """
        self._messages_max = messages_max or math.inf
        self._expire_s = expire_s or math.inf
        self._acknowledge_oldest = acknowledge_oldest
        self._now_ms = now_ms
        self._gets_all = gets_all
        self._orphans: dict[Position, float] = {}
        """Chunks without a beginning, which must have been acknowledged, and when they expire."""
        self._given_up: dict[str, None] = {}
        """Messages whose beginning was dropped, and comes again some time."""
        self._pending: dict[Position, PendingMessage] = {}
        """By the position of the first chunk, in the order of arrival."""
        self._starts: dict[str, list[Position]] = {}
        """Incomplete messages by uuid."""
        self._sequences: dict[Position, tuple[Position, ...]] = {}
        self._known = 0
        self._whole: dict[tuple[str, int], Position] = {}
        self.to_acknowledge: list[Position] = []
        self.incomplete: deque[Position] = deque(maxlen=INCOMPLETE_MAX)
        """Last chunks of messages that couldn't be assembled; the caller empties it."""
        self.dropped = 0
        """Number of dropped messages: too many pending, expired, or with inconsistent chunks."""

    def __len__(self) -> int:
        """Number of incomplete messages."""
        return len(self._pending)

    def add(
        self, chunk: Chunk, position: Position, data: bytes, published_ms: int, now_s: float
    ) -> bytes | None:
        """Add a chunk; returns the message's (compressed) bytes if it was the last one."""
        if chunk.chunk_id == 0:
            pending: PendingMessage | None = self._begin(chunk, position, published_ms, now_s)
        else:
            pending = self._find(chunk, position, published_ms)
        if pending is None:
            self._without_start(chunk, position, published_ms, now_s)
            return None
        self._orphans.pop(position, None)
        is_sure = published_ms == pending.published_ms
        if chunk.chunk_id < len(pending.parts):
            if position not in pending.positions and is_sure:
                # The producer sent it twice (the same position would be a redelivery).
                self.to_acknowledge.append(position)
            return None
        size_bytes = pending.size_bytes + len(data)
        if chunk.chunk_id > len(pending.parts) or size_bytes > chunk.total_bytes:
            if is_sure:
                self._give_up(pending, acknowledge=False)
            self._misses(chunk, position)
            return None
        pending.parts.append(data)
        pending.positions.append(position)
        pending.size_bytes = size_bytes
        if chunk.chunk_id < chunk.chunks - 1:
            return None
        self._remove(pending)
        self._note(position, tuple(pending.positions[:-1]))
        self._is_whole((chunk.uuid, pending.published_ms), position)
        return b"".join(pending.parts)

    def _find(self, chunk: Chunk, position: Position, published_ms: int) -> PendingMessage | None:
        """The chunk's message: among those that began before it, the last one with its publish
        time; for a producer that gives each chunk its own time, the last one.
        """
        starts = self._starts.get(chunk.uuid, ())
        fitting = [
            each for start in starts if (each := self._pending[start]).may_have(chunk, position)
        ]
        same = [each for each in fitting if each.published_ms == published_ms]
        return max(same or fitting, key=lambda each: each.start, default=None)

    def _without_start(
        self, chunk: Chunk, position: Position, published_ms: int, now_s: float
    ) -> None:
        # The first chunk is before our start, or was dropped; or the message is complete, and the
        # producer resent this chunk, as it got no receipt.
        whole_at = self._whole.get((chunk.uuid, published_ms))
        is_repeated = whole_at is not None and position > whole_at
        left_s = self._expire_s - (self._now_ms() - published_ms) / 1000
        if is_repeated or left_s < 0:
            self.to_acknowledge.append(position)
        elif self._gets_all and chunk.uuid not in self._given_up:
            if len(self._orphans) >= INCOMPLETE_MAX:
                del self._orphans[next(iter(self._orphans))]
            self._orphans[position] = now_s + left_s
        if not is_repeated:
            self._misses(chunk, position)

    def _misses(self, chunk: Chunk, position: Position) -> None:
        if chunk.chunk_id == chunk.chunks - 1:
            self.incomplete.append(position)

    def knows(self, position: Position) -> None:
        """The latest last chunk doesn't belong to an incomplete message."""
        if self.incomplete and self.incomplete[-1] == position:
            self.incomplete.pop()

    def _begin(
        self, chunk: Chunk, position: Position, published_ms: int, now_s: float
    ) -> PendingMessage:
        for start in list(self._starts.get(chunk.uuid, ())):
            before = self._pending[start]
            if start == position:
                # The first chunk is redelivered, and the others will be.
                self._give_up(before, acknowledge=False)
            elif start < position and before.published_ms == published_ms:
                # The producer resends the message: the earlier chunks will never be complete.
                self._give_up(before, acknowledge=True)
        if len(self._pending) >= self._messages_max:
            self._give_up(next(iter(self._pending.values())), acknowledge=self._acknowledge_oldest)
        pending = self._pending[position] = PendingMessage(chunk, position, published_ms, now_s)
        self._starts.setdefault(chunk.uuid, []).append(position)
        return pending

    def _remove(self, pending: PendingMessage) -> None:
        start, uuid = pending.start, pending.first.uuid
        del self._pending[start]
        self._starts[uuid].remove(start)
        if not self._starts[uuid]:
            del self._starts[uuid]

    def _give_up(self, pending: PendingMessage, *, acknowledge: bool) -> None:
        self._remove(pending)
        self.dropped += 1
        if acknowledge:
            self.to_acknowledge += pending.positions
            return
        if len(self._given_up) >= INCOMPLETE_MAX:
            del self._given_up[next(iter(self._given_up))]
        self._given_up[pending.first.uuid] = None

    def _note(self, last: Position, earlier: tuple[Position, ...]) -> None:
        # The newest message is always remembered, after all others.
        self.take_earlier(last)
        self._known += len(earlier)
        while self._sequences and self._known > SEQUENCES_MAX:
            self.take_earlier(next(iter(self._sequences)))
        self._sequences[last] = earlier

    def _is_whole(self, name: tuple[str, int], last: Position) -> None:
        self._whole.pop(name, None)
        if len(self._whole) >= WHOLE_MAX:
            del self._whole[next(iter(self._whole))]
        self._whole[name] = last

    def expire(self, now_s: float) -> float:
        """Drop expired messages permanently; returns the time of the next check."""
        for position, due_s in list(self._orphans.items()):
            if now_s < due_s:
                break
            del self._orphans[position]
            self.to_acknowledge.append(position)
        for pending in list(self._pending.values()):
            expires_s = pending.began_s + self._expire_s
            if now_s < expires_s:
                break
            self._give_up(pending, acknowledge=True)
        return self.next_expiry_s

    @property
    def next_expiry_s(self) -> float:
        """When the oldest pending message, or chunk without a beginning, expires."""
        found = next(iter(self._orphans.values()), math.inf)
        for pending in self._pending.values():
            return min(found, pending.began_s + self._expire_s)
        return found

    @property
    def oldest(self) -> Position | None:
        """The position where the first incomplete message begins."""
        return min(self._pending, default=None)

    def earlier(self, last: Position) -> tuple[Position, ...]:
        """The other chunks of a message, by its last one; empty for a message without chunks."""
        return self._sequences.get(last, ())

    def take_earlier(self, last: Position) -> tuple[Position, ...]:
        """`earlier`, and forget them, as the message is acknowledged."""
        earlier = self._sequences.pop(last, ()) if self._sequences else ()
        self._known -= len(earlier)
        return earlier

    def forget_up_to(self, last: Position) -> None:
        """Forget all messages up to this position: they are acknowledged."""
        while self._sequences:
            oldest = next(iter(self._sequences))
            if oldest > last:
                return
            self.take_earlier(oldest)

    def clear(self) -> None:
        """All unacknowledged messages come again: forget incomplete ones. Chunks of delivered
        messages are remembered, as the program may still acknowledge these.
        """
        self._pending.clear()
        self._starts.clear()
        self._orphans.clear()
        self._given_up.clear()
        self.to_acknowledge.clear()
