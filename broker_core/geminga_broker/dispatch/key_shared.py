"""Key_Shared: entries of one key go to one consumer, in order (spec BR-31).

A hash that moved to another consumer waits until the old one has acknowledged or given back what it
holds of it (PIP-379). As long as anything of a hash is in flight its holder is known by count, so
"draining" needs no further state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from geminga_broker.consumer import Consumer
from geminga_broker.dispatch.delaying import KEY_SHARED
from geminga_broker.dispatch.hash_ring import HashRing, Overlap, StickyRanges
from geminga_broker.dispatch.peek import slot_of
from geminga_broker.dispatch.pump import DispatchContext
from geminga_broker.dispatch.shared import SharedDispatcher
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Entry
from geminga_broker.topic_api import KeySharedPolicy, SubType
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode, MessageMetadata, ServerError


class Taker(Protocol):
    """A consumer, as far as the assignment goes."""

    @property
    def ready(self) -> bool:
        """Whether it may get something now."""

    @property
    def room(self) -> int:
        """How many messages it may get; over 0 if it is ready."""


def assign_by_hash(
    items: Sequence[tuple[int, int]],
    owners: dict[int, Taker | None],
    held_back: set[int],
) -> tuple[dict[Taker, list[int]], list[int]]:
    """Give out entries in order: (indexes per consumer, indexes that must wait).

    `items` are (hash, messages); `owners` says who may get a hash now, None if nobody. Once an
    entry of a hash waits, all later ones of it do; `held_back` are hashes of which earlier ones
    wait elsewhere.
    """
    permits: dict[Taker, int] = {}
    given: dict[Taker, list[int]] = {}
    waiting: list[int] = []
    stopped = set(held_back)
    for index, (key_hash, messages) in enumerate(items):
        owner = owners[key_hash]
        if owner is None or key_hash in stopped:
            stopped.add(key_hash)
            waiting.append(index)
            continue
        left = permits.get(owner)
        if left is None:
            left = owner.room
        if left <= 0:
            stopped.add(key_hash)
            waiting.append(index)
            continue
        permits[owner] = left - messages
        given.setdefault(owner, []).append(index)
    return given, waiting


class KeySharedDispatcher(SharedDispatcher):
    """Follows PersistentStickyKeyDispatcherMultipleConsumers of 4.0."""

    def __init__(self, context: DispatchContext, policy: KeySharedPolicy) -> None:
        super().__init__(context)
        self.policy_mode = policy.mode
        self.out_of_order = policy.allow_out_of_order
        sticky = policy.mode == KeySharedMode.STICKY
        self._selector: HashRing[Consumer] | StickyRanges[Consumer] = (
            StickyRanges() if sticky else HashRing()
        )
        self._delayed.kind = KEY_SHARED + self._selector.first_slot
        # Who holds entries of a hash, how many, and what each position's hash is.
        self._holders: dict[int, Consumer] = {}
        self._held: dict[int, int] = {}
        self._hash_by_position: dict[Position, int] = {}
        self.kicked = True

    @property
    def key_shared_mode(self) -> str | None:
        """For stats."""
        return self._selector.mode

    def key_ranges(self, consumer: Consumer) -> list[tuple[int, int]]:
        """For stats: first and last slot of each range."""
        return list(self._selector.ranges(consumer))

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Whether a consumer of that policy may join."""
        return (policy.mode, policy.allow_out_of_order) == (self.policy_mode, self.out_of_order)

    @property
    def sub_type(self) -> int:
        """Key_Shared."""
        return SubType.Key_Shared

    def admit(self, consumer: Consumer) -> None:
        """Raises BrokerError ConsumerAssignError when ranges overlap."""
        policy = consumer.request.key_shared or KeySharedPolicy()
        try:
            self._selector.add(consumer, policy.ranges)
        except Overlap as error:
            raise BrokerError(ServerError.ConsumerAssignError, str(error)) from None
        self.consumers.append(consumer)
        self.kicked = True

    def remove(self, consumer: Consumer) -> None:
        """Its hashes go to the others, what it held first."""
        self._selector.remove(consumer)
        super().remove(consumer)
        self.kicked = True

    # ---- who holds what ----

    def put_back(self, consumer: Consumer, position: Position) -> None:
        """Queue under its hash, and count it out."""
        self.put_back_count += 1
        key_hash = self._hash_by_position.get(position, -1)
        self.released(consumer, position)
        self.replay.add(position, key_hash)
        self.kicked = True

    def released(self, consumer: Consumer, position: Position) -> None:
        """Count out; the last of a hash frees it for its new owner."""
        key_hash = self._hash_by_position.pop(position, None)
        if key_hash is None:
            return
        left = self._held[key_hash] - 1
        if left:
            self._held[key_hash] = left
            return
        del self._held[key_hash], self._holders[key_hash]
        if self.replay.holds_hash(key_hash):
            self.kicked = True
            self._wake()

    def forget_in_flight(self) -> None:
        """Nobody holds anything any more."""
        self._holders.clear()
        self._held.clear()
        self._hash_by_position.clear()

    @property
    def draining(self) -> int:
        """Hashes that wait for their old owner."""
        owner = self._selector.owner
        return sum(1 for slot, holder in self._holders.items() if owner(slot) is not holder)

    def _taker(self, key_hash: int) -> Consumer | None:
        """Who may get entries of this hash now."""
        owner = self._selector.owner(key_hash)
        if owner is None or not owner.ready:
            return None
        holder = self._holders.get(key_hash)
        if holder is not None and holder is not owner and not self.out_of_order:
            return None
        return owner

    # ---- dispatch ----

    def look(self, entry: Entry) -> MessageMetadata | None:
        """The entry's metadata, which the key needs anyway; the entry keeps them parsed."""
        try:
            return entry.metadata
        except RemoteProtocolError:
            return None

    def hash_of(self, entry: Entry) -> int:
        """The entry's hash, as the selector reckons it."""
        return slot_of(entry, self._selector.first_slot)

    @property
    def delay_room(self) -> int:
        """How many entries that are due may be queued: as far as look-ahead goes."""
        return self._look_ahead - len(self.replay)

    async def round(self) -> bool:
        """Replays whose hash is free, else new entries, as far as look-ahead goes."""
        self.begin_round()
        await self._collect_due()
        if self.blocked or not any(consumer.ready for consumer in self.consumers):
            return False
        if self.replay and self.kicked:
            found = self.replay.first_where(
                self.options.dispatch_entries_max, lambda h: self._taker(h) is not None
            )
            if found:
                return await self._replay_round(found)
            self.kicked = False
        if len(self.replay) >= self._look_ahead:
            return False
        entries = await self.read_on(self.options.dispatch_entries_max)
        if not entries or self.stale:
            return self.stale
        entries = self._plain(entries)
        self._give_by_hash([(entry, self.hash_of(entry)) for entry in entries], new=True)
        return True

    @property
    def _look_ahead(self) -> int:
        options = self.options
        per_consumer = options.look_ahead_per_consumer_entries * len(self.consumers)
        return min(per_consumer, options.look_ahead_entries_max)

    async def _replay_round(self, found: list[tuple[Position, int]]) -> bool:
        hashes = dict(found)
        entries = await self.read_again(list(hashes))
        self._give_by_hash([(entry, hashes[entry.position]) for entry in entries], new=False)
        return True

    def _give_by_hash(self, items: list[tuple[Entry, int]], *, new: bool) -> None:
        """Send what may go, queue the rest."""
        owners: dict[int, Taker | None] = {}
        held_back: set[int] = set()
        for _, key_hash in items:
            if key_hash not in owners:
                owners[key_hash] = self._taker(key_hash)
                if new and not self.out_of_order and self.replay.holds_hash(key_hash):
                    held_back.add(key_hash)
        pairs = [(key_hash, entry.messages) for entry, key_hash in items]
        given, waiting = assign_by_hash(pairs, owners, held_back)
        for taker, indexes in given.items():
            assert isinstance(taker, Consumer)
            for index in indexes:
                self._hold(taker, items[index])
            self.send(taker, [items[index][0] for index in indexes])
        for index in waiting:
            self.replay.add(items[index][0].position, items[index][1])

    def _hold(self, consumer: Consumer, item: tuple[Entry, int]) -> None:
        entry, key_hash = item
        self._hash_by_position[entry.position] = key_hash
        self._holders[key_hash] = consumer
        self._held[key_hash] = self._held.get(key_hash, 0) + 1
