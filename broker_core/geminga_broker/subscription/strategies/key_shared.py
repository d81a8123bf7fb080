"""Key_Shared: entries of one key go to one consumer, in order (spec BR-31).

A hash that moved to another consumer waits until the old one has acknowledged or given back what it
holds of it (PIP-379); so do entries of a hash whose earlier ones wait. While a consumer lacks
chunks of a message that it has begun to get, it keeps the hash.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol, TypeVar

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, Entry, LogError
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.chunks import UnfinishedMessages, chunks_in
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.delayed_delivery import KEY_SHARED
from geminga_broker.subscription.pump import DispatchContext
from geminga_broker.subscription.replay import KeyedReplayQueue
from geminga_broker.subscription.special_metadata import plain_key, slot_of
from geminga_broker.subscription.strategies.draining_hashes import HashHolders
from geminga_broker.subscription.strategies.hash_ring import (
    CannotAssign,
    HashRing,
    Selector,
    SplitRanges,
    StickyRanges,
)
from geminga_broker.subscription.strategies.shared import SharedDispatcher
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_broker.topic.stats import ConsumerStats, DrainingHashStats
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.keys import key_slot
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode, MessageMetadata, ServerError


class Taker(Protocol):
    """A consumer, as far as the assignment goes."""

    @property
    def ready(self) -> bool:
        """Whether it may get something now."""

    @property
    def room(self) -> int:
        """How many messages it may get; over 0 if it is ready."""


class Sized(Protocol):
    """An entry, as far as the assignment goes."""

    @property
    def messages(self) -> int:
        """How many it holds."""


T = TypeVar("T", bound=Taker)
E = TypeVar("E", bound=Sized)

CONSUMERS_PER_READ = 30
ROUND_READS_MAX = 3
"""A round reads once more for so many consumers, up to so often: each write costs as much as two
entries, and of a hundred entries a hundred consumers would get one or two each.
"""

LOOK_AHEAD_ENTRIES = 1 << 20
"""What may wait where neither look-ahead nor unacknowledged messages are limited."""


def look_ahead(options: TopicOptions, consumers: int) -> int:
    """How many entries may wait for their consumers (getEffectiveLookAheadLimit): the lower of two
    limits, of which 0 is none; without both the limits of unacknowledged messages stand in.
    """
    limits = (
        (options.look_ahead_per_consumer_entries * consumers, options.look_ahead_entries_max),
        (options.unacked_per_consumer_max * consumers, options.unacked_per_subscription_max),
    )
    for pair in limits:
        if set_limits := [limit for limit in pair if limit > 0]:
            return min(set_limits)
    return LOOK_AHEAD_ENTRIES


def selector_for(policy: KeySharedPolicy, options: TopicOptions) -> Selector[Consumer]:
    """Who says which consumer owns a hash."""
    if policy.mode == KeySharedMode.STICKY:
        return StickyRanges()
    if options.consistent_hashing:
        return HashRing(options.hash_points)
    return SplitRanges()


def assign_by_hash(
    items: Iterable[tuple[E, int]],
    claimant: Callable[[int], T | None],
    held_back: Container[int],
) -> tuple[dict[T, list[tuple[E, int]]], list[tuple[E, int]]]:
    """Give out entries, each with its hash, in order: (those of each consumer, those that wait).

    `claimant` says who may get a hash, None if nobody; `held_back` are hashes of which earlier
    entries wait elsewhere. Each taker is asked once what it may get; an entry goes out whole as
    long as there is room for one message. Once an entry of a hash waits, all later ones of it do,
    for its taker stays the same and gets no more room.
    """
    room: dict[T, int] = {}
    given: dict[T, list[tuple[E, int]]] = {}
    waiting: list[tuple[E, int]] = []
    takers: dict[int, T | None] = {}
    for item in items:
        entry, key_hash = item
        if key_hash in takers:
            taker = takers[key_hash]
        else:
            taker = None if key_hash in held_back else claimant(key_hash)
            takers[key_hash] = taker
        if taker is None:
            waiting.append(item)
            continue
        if taker not in room:
            room[taker] = taker.room if taker.ready else 0
            given[taker] = []
        if room[taker] > 0:
            room[taker] -= entry.messages
            given[taker].append(item)
        else:
            waiting.append(item)
    return {taker: entries for taker, entries in given.items() if entries}, waiting


class KeySharedDispatcher(SharedDispatcher):
    """Follows PersistentStickyKeyDispatcherMultipleConsumers of 4.0."""

    def __init__(self, context: DispatchContext, policy: KeySharedPolicy) -> None:
        super().__init__(context)
        self.policy_mode = policy.mode
        self.out_of_order = policy.allow_out_of_order
        self._selector = selector_for(policy, context.options)
        # STICKY ranges don't move while their consumer is there.
        self._drains = not self.out_of_order and policy.mode == KeySharedMode.AUTO_SPLIT
        self._delayed.kind = KEY_SHARED + self._selector.first_slot
        self._holders: HashHolders[Consumer] = HashHolders()
        self._unfinished = UnfinishedMessages()
        self._keyed: KeyedReplayQueue[Consumer] = KeyedReplayQueue(self._claimant)
        self.replay = self._keyed
        self.kicked = True

    @property
    def key_shared_mode(self) -> str | None:
        """For stats."""
        return self._selector.mode

    def describe(self, consumers: Sequence[tuple[Consumer, ConsumerStats]]) -> None:
        """Put in their statistics what only the dispatcher knows."""
        draining = self._holders.draining_hashes()
        for consumer, stats in consumers:
            stats.key_hash_range_arrays = list(self._selector.ranges(consumer))
            if not self._drains:
                continue
            hashes = draining.get(consumer, [])
            stats.draining_hashes = [DrainingHashStats(*each) for each in hashes]
            stats.draining_hashes_count = len(hashes)
            stats.draining_hashes_unacked_messages = sum(each.entries for each in hashes)
            stats.draining_hashes_cleared_total = self._holders.cleared_by(consumer)

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
        except CannotAssign as error:
            raise BrokerError(ServerError.ConsumerAssignError, str(error)) from None
        self.consumers.append(consumer)
        self._moved(self._selector.ranges(consumer))

    def remove(self, consumer: Consumer) -> None:
        """Its hashes go to the others, what it held first."""
        ranges = self._selector.ranges(consumer)
        self._selector.remove(consumer)
        self._keyed.claims_changed()
        super().remove(consumer)
        self._moved(ranges)
        self._holders.gone(consumer)

    def _moved(self, ranges: Sequence[tuple[int, int]]) -> None:
        if self._drains:
            self._holders.moved(ranges, self._selector.owner)
        self._keyed.claims_changed()
        self.kicked = True

    # ---- who holds what ----

    def put_back(self, consumer: Consumer, position: Position) -> None:
        """Queue under its hash, and count it out."""
        self.put_back_count += 1
        key_hash = self._holders.hash_of(position)
        self.released(consumer, position)
        self._keyed.add(position, key_hash)
        self.kicked = True

    def released(self, consumer: Consumer, position: Position) -> None:
        """Count out; the last of a hash frees it for its new owner."""
        if self._unfinished:
            self._unfinished.release(position)
        free = self._holders.release(position)
        if free is not None and free in self._keyed.hashes:
            self._keyed.offer(free)
            self.kicked = True
            self._wake()

    def forget_in_flight(self) -> None:
        """Nobody holds anything any more."""
        self._holders.clear()
        self._unfinished.clear()

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Individual only; one that waited makes room for look-ahead."""
        waiting = len(self._keyed)
        super().acknowledge(consumer, acks, cumulative)
        if len(self._keyed) < waiting:
            self._wake()

    def forget_deleted(self) -> None:
        """What waits for somebody who may never come is of no use any more either."""
        super().forget_deleted()
        self._keyed.discard_where(self.cursor.is_deleted)
        self._wake()

    @property
    def draining(self) -> int:
        """Hashes that wait for their old owner."""
        return self._holders.draining

    def _claimant(self, key_hash: int) -> Consumer | None:
        """Who may get entries of this hash, permits left aside."""
        owner = self._selector.owner(key_hash)
        holder = self._holders.get(key_hash)
        if holder is None or holder is owner:
            return owner
        if key_hash in self._unfinished:
            return holder
        return owner if self.out_of_order else None

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

    def _with_hashes(self, entries: Sequence[Entry]) -> Sequence[tuple[Entry, int]]:
        """New entries that may go out now, with their hashes; parsed only if one needs it."""
        if not (self._delayed or self.options.entry_filters):
            first = self._selector.first_slot
            items = [
                (entry, key_slot(key, first))
                for entry in entries
                if (key := plain_key(entry.data)) is not None
            ]
            if len(items) == len(entries):
                self._may_be_chunks = False
                return items
        return [(entry, self.hash_of(entry)) for entry in self._plain(entries)]

    @property
    def delay_room(self) -> int:
        """How many entries that are due may be queued: as far as look-ahead goes."""
        return self._look_ahead - len(self._keyed)

    async def round(self) -> bool:
        """Replays whose hash is free, else new entries, as far as look-ahead goes."""
        self.begin_round()
        await self._collect_due()
        if self.blocked or not any(consumer.ready for consumer in self.consumers):
            return False
        if self.kicked:
            if found := self._replays(self.entries_wanted(self.entries_max, 1.0)):
                return await self._replay_round(found)
            self.kicked = False
        room = self._look_ahead - len(self._keyed)
        if room <= 0:
            return False
        entries = await self._read_new(room)
        if not entries or self.stale:
            return self.stale
        held_back = () if self.out_of_order else self._keyed.hashes
        items = self._with_hashes(self.unacknowledged(entries))
        self._give_by_hash(items, held_back, self._may_be_chunks)
        return True

    async def _read_new(self, room: int) -> Sequence[Entry]:
        """New entries for all consumers, up to `room`."""
        reads = 1 if self.gentle else 1 + len(self.consumers) // CONSUMERS_PER_READ
        wanted = min(room, min(reads, ROUND_READS_MAX) * self.entries_max)
        if self.allowance is not None:
            average = sum(consumer.average for consumer in self.consumers) / len(self.consumers)
            wanted = min(wanted, self.entries_wanted(wanted, average))
        entries = await self.read_on(wanted)
        size = sum([entry.size for entry in entries])
        while entries and len(entries) < wanted and size < self.bytes_max and not self.stale:
            try:
                more = await self.read_on(wanted - len(entries))
            except LogError:
                break  # the next round will meet it again
            if not more:
                break
            entries = [*entries, *more]
            size += sum([entry.size for entry in more])
        return entries

    @property
    def _look_ahead(self) -> int:
        return look_ahead(self.options, len(self.consumers))

    def _replays(self, entries_max: int) -> list[tuple[Position, int]]:
        """Waiting entries that somebody may and can take."""
        found: list[tuple[Position, int]] = []
        for consumer in self._keyed.claimants():
            if consumer.ready:
                wanted = min(entries_max - len(found), consumer.room)
                found += self._keyed.first_for(consumer, wanted)
                if len(found) >= entries_max:
                    break
        found.sort()
        return found

    async def _replay_round(self, found: list[tuple[Position, int]]) -> bool:
        hashes = dict(found)
        entries = await self.read_again(list(hashes))
        self._give_by_hash([(entry, hashes[entry.position]) for entry in entries], (), True)
        return True

    def _give_by_hash(
        self, items: Iterable[tuple[Entry, int]], held_back: Container[int], may_be_chunks: bool
    ) -> None:
        """Send what may go, queue the rest."""
        given, waiting = assign_by_hash(items, self._claimant, held_back)
        holders = self._holders
        for consumer, entries in given.items():
            holders.hold(consumer, [(entry.position, key_hash) for entry, key_hash in entries])
            self.send(consumer, [entry for entry, _ in entries])
            if may_be_chunks:
                for index, chunk in chunks_in([entry for entry, _ in entries]).items():
                    entry, key_hash = entries[index]
                    self._unfinished.sent(entry.position, key_hash, chunk)
            if waiting and self.options.batch_index_ack and consumer.ready:
                # Less went out than was reckoned with: batches were acknowledged in part.
                self.kicked = True
        for entry, key_hash in waiting:
            holders.blocks(key_hash)
            self._keyed.add(entry.position, key_hash)
