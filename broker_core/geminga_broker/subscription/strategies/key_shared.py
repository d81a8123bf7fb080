"""Key_Shared: entries of one key go to one consumer, in order (spec BR-31).

A hash that moved to another consumer waits until the old one has acknowledged or given back all its
entries of that hash (PIP-379). An entry also waits while earlier ones of its hash do. A consumer
keeps a hash while it lacks chunks of a message whose first chunk it has.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Generic

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Entry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription.chunks import UnfinishedMessages, chunks_in
from geminga_broker.subscription.replay import KeyedReplayQueue
from geminga_broker.subscription.state import M, State
from geminga_broker.subscription.sticky_keys import plain_key, slot_of
from geminga_broker.subscription.strategies.choose import Give
from geminga_broker.subscription.strategies.draining_hashes import DrainingHashes
from geminga_broker.subscription.strategies.hash_ring import (
    CannotAssign,
    HashRing,
    Selector,
    SplitRanges,
    StickyRanges,
)
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_broker.topic.stats import SubscriptionStats
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.keys import key_slot
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode, MessageMetadata, ServerError

CONSUMERS_PER_READ = 30
ROUND_READS_MAX = 3
"""A round does one more read for each CONSUMERS_PER_READ consumers, up to ROUND_READS_MAX: a write
costs as much as two entries, and 100 consumers would get one or two of 100 entries each.
"""

LOOK_AHEAD_ENTRIES = 1 << 20
"""Bound of waiting entries if neither look-ahead nor unacknowledged messages are limited."""


def look_ahead(options: TopicOptions, consumers: int) -> int:
    """How many entries may wait for their consumers (getEffectiveLookAheadLimit): the lower one of
    two limits (0: unlimited); without both, of the limits of unacknowledged messages.
    """
    limits = (
        (options.look_ahead_per_consumer_entries * consumers, options.look_ahead_entries_max),
        (options.unacked_per_consumer_max * consumers, options.unacked_per_subscription_max),
    )
    for pair in limits:
        if set_limits := [limit for limit in pair if limit > 0]:
            return min(set_limits)
    return LOOK_AHEAD_ENTRIES


def assign_by_hash(
    items: Iterable[tuple[Entry, int]],
    claimant: Callable[[int], M | None],
    held_back: Container[int],
) -> tuple[dict[M, list[tuple[Entry, int]]], list[tuple[Entry, int]]]:
    """Give out entries, each with its hash, in order: (entries of each consumer, waiting entries).

    `claimant` returns the consumer that may get a hash, or None; `held_back` are hashes with
    earlier entries that wait elsewhere. Each consumer's room is asked for once; room for one
    message is enough for a whole entry. Once an entry of a hash waits, all later ones of it do: its
    consumer stays the same and gets no more room.
    """
    room: dict[M, int] = {}
    given: dict[M, list[tuple[Entry, int]]] = {}
    waiting: list[tuple[Entry, int]] = []
    takers: dict[int, M | None] = {}
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


class ByKey(Generic[M]):
    """Each hash has an owner; nothing is kept."""

    sub_type: int = SubType.Key_Shared

    def __init__(self, members: list[M], policy: KeySharedPolicy, options: TopicOptions) -> None:
        self.selector: Selector[M] = SplitRanges()
        if policy.mode == KeySharedMode.STICKY:
            self.selector = StickyRanges()
        elif options.consistent_hashing:
            self.selector = HashRing(options.hash_points)
        self._members = members

    def admit(self, member: M, policy: KeySharedPolicy) -> None:
        """Raises BrokerError ConsumerAssignError when ranges overlap."""
        try:
            self.selector.add(member, policy.ranges)
        except CannotAssign as error:
            raise BrokerError(ServerError.ConsumerAssignError, str(error)) from None
        self._members.append(member)

    def remove(self, member: M) -> None:
        """A member left; its hashes go to the others."""
        self._members.remove(member)
        self.selector.remove(member)

    def assign(self, entries: Sequence[Entry], give: Give[M]) -> Sequence[Entry]:
        """Give entries to the owners of their hashes, as permits allow; returns the rest."""
        first = self.selector.first_slot
        items = [(entry, slot_of(entry, first)) for entry in entries]
        given, waiting = assign_by_hash(items, self.selector.owner, ())
        for member, taken in given.items():
            give(member, [each for each, _ in taken], [each.messages for each, _ in taken])
        return [entry for entry, _ in waiting]


class KeyShared(Generic[M]):
    """Hashes with owners; some hashes drain, and entries wait for them. Follows
    PersistentStickyKeyDispatcherMultipleConsumers of 4.0.
    """

    sub_type: int = SubType.Key_Shared
    reads_on = True
    full = False

    def __init__(self, state: State[M], policy: KeySharedPolicy) -> None:
        self.out_of_order = policy.allow_out_of_order
        self._policy_mode = policy.mode
        self._state = state
        self._owners: ByKey[M] = ByKey(state.members, policy, state.options)
        self.selector = self._owners.selector
        self.mode: str | None = self.selector.mode
        # STICKY ranges move only when their member leaves.
        self._drains = not self.out_of_order and policy.mode == KeySharedMode.AUTO_SPLIT
        self.draining: DrainingHashes[M] = DrainingHashes()
        self.hash_of_held = self.draining.hash_of
        self._unfinished = UnfinishedMessages()
        self.replay: KeyedReplayQueue[M] = KeyedReplayQueue(self._claimant)
        self._asked: dict[Position, int] = {}
        """Hashes of the waiting entries in the last ReadAt."""

    @property
    def waiting(self) -> int:
        """Entries that were read and wait to be sent."""
        return len(self.replay)

    @property
    def delay_room(self) -> int:
        """How many due entries may be queued, by the look-ahead limit."""
        return self._look_ahead - len(self.replay)

    @property
    def _look_ahead(self) -> int:
        return look_ahead(self._state.options, len(self._state.members))

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Whether a consumer with that policy may join."""
        return (policy.mode, policy.allow_out_of_order) == (self._policy_mode, self.out_of_order)

    def describe(self, stats: SubscriptionStats) -> None:
        """Add ranges and draining hashes to the statistics of the members."""
        draining = self.draining.draining_hashes()
        for member, found in zip(self._state.members, stats.consumers, strict=True):
            found.key_hash_range_arrays = list(self.selector.ranges(member))
            if not self._drains:
                continue
            found.draining_hashes = hashes = draining.get(member, [])
            found.draining_hashes_count = len(hashes)
            found.draining_hashes_unacked_messages = sum(each.unack_msgs for each in hashes)
            found.draining_hashes_cleared_total = self.draining.cleared_by(member)
            stats.draining_hashes_count += found.draining_hashes_count
            stats.draining_hashes_unacked_messages += found.draining_hashes_unacked_messages
            stats.draining_hashes_cleared_total += found.draining_hashes_cleared_total

    # ---- members ----

    def admit(self, member: M, policy: KeySharedPolicy) -> None:
        """Raises BrokerError ConsumerAssignError when ranges overlap."""
        self._owners.admit(member, policy)
        self._moved(self.selector.ranges(member))

    def remove(self, member: M, held: Iterable[Position] | None) -> None:
        """A member left; its hashes go to the others, its held entries first. `held` is None
        without others.
        """
        ranges = self.selector.ranges(member)
        self._owners.remove(member)
        self.replay.claims_changed()
        if held is not None:
            self.put_back(held)
        self._moved(ranges)
        self.draining.gone(member)

    def emptied(self) -> None:
        """No member is left, and nothing is held."""
        self.draining.clear()
        self._unfinished.clear()

    def _moved(self, ranges: Sequence[tuple[int, int]]) -> None:
        if self._drains:
            self.draining.moved(ranges, self.selector.owner)
        self.replay.claims_changed()
        self._state.epochs.note_changed()

    # ---- entries that wait ----

    def put_back(self, positions: Iterable[Position]) -> None:
        """Queue entries that a member gave back, by their hashes; they are no longer held."""
        for position in positions:
            key_hash = self.draining.hash_of(position)
            self.released(position)
            self.replay.add(position, key_hash)
        self._state.epochs.note_changed()

    def released(self, position: Position) -> bool:
        """An entry is no longer held. The last one of a hash frees the hash for its new owner;
        returns whether that makes entries sendable.
        """
        if self._unfinished:
            self._unfinished.release(position)
        free = self.draining.release(position)
        if free is None or free not in self.replay.hashes:
            return False
        self.replay.offer(free)
        self._state.epochs.note_changed()
        return True

    def acknowledged_unheld(self, position: Position) -> None:
        """An entry without holder was acknowledged: only the queue may have it."""

    def discard_where(self, gone: Callable[[Position], bool]) -> None:
        """An admin operation or a seek acknowledged entries; some may wait for a missing member."""
        self.replay.discard_where(gone)

    def reset(self) -> None:
        """Forget waiting entries, which are reread."""
        self.replay.clear()

    def _claimant(self, key_hash: int) -> M | None:
        """The member that may get entries of this hash, whatever its permits."""
        owner = self.selector.owner(key_hash)
        holder = self.draining.get(key_hash)
        if holder is None or holder is owner:
            return owner
        if key_hash in self._unfinished:
            return holder
        return owner if self.out_of_order else None

    # ---- a round ----

    def plan(self) -> fx.Read | fx.ReadAt | None:
        """Read waiting entries that a member can take, else new ones, within the look-ahead."""
        state, epochs = self._state, self._state.epochs
        if epochs.changed > epochs.searched:
            if found := self._sendable(state.entries_wanted(state.entries_max, 1.0)):
                self._asked = dict(found)
                return fx.ReadAt(list(self._asked), state.bytes_max)
            epochs.searched = epochs.now
        room = self._look_ahead - len(self.replay)
        if room <= 0:
            return None
        members = state.members
        reads = 1 if state.paced else 1 + len(members) // CONSUMERS_PER_READ
        wanted = min(room, min(reads, ROUND_READS_MAX) * state.entries_max)
        if state.allowance is not None:
            average = sum([member.average for member in members]) / len(members)
            wanted = min(wanted, state.entries_wanted(wanted, average))
        return fx.Read(wanted, state.bytes_max)

    def _sendable(self, entries_max: int) -> list[tuple[Position, int]]:
        """Waiting entries that a member may and can take, with their hashes."""
        found: list[tuple[Position, int]] = []
        for member in self.replay.claimants():
            if member.ready:
                wanted = min(entries_max - len(found), member.room)
                found += self.replay.first_for(member, wanted)
                if len(found) >= entries_max:
                    break
        found.sort()
        return found

    def plain_hashes(self, entries: Sequence[Entry]) -> Sequence[int] | None:
        """The hashes of plain entries (no marker, delay or chunk), without parsing; None if any may
        not be plain.
        """
        first = self.selector.first_slot
        hashes = [
            key_slot(key, first) for entry in entries if (key := plain_key(entry.data)) is not None
        ]
        return hashes if len(hashes) == len(entries) else None

    def assign(
        self,
        entries: Sequence[Entry],
        hashes: Sequence[int] | None,
        may_be_chunks: bool,
        give: Give[M],
    ) -> Sequence[Entry]:
        """Give entries to members, as allowed; queue the rest."""
        if hashes is None:
            hashes = [self.hash_of(entry) for entry in entries]
        held_back = () if self.out_of_order else self.replay.hashes
        self._give(zip(entries, hashes, strict=True), held_back, may_be_chunks, give)
        return ()

    def assign_again(self, entries: Sequence[Entry], give: Give[M]) -> Sequence[Entry]:
        """Give queued entries to members; queue the rest again."""
        asked = self._asked
        self._give([(entry, asked[entry.position]) for entry in entries], (), True, give)
        return ()

    def _give(
        self,
        items: Iterable[tuple[Entry, int]],
        held_back: Container[int],
        may_be_chunks: bool,
        give: Give[M],
    ) -> None:
        given, waiting = assign_by_hash(items, self._claimant, held_back)
        draining = self.draining
        for member, taken in given.items():
            draining.hold(member, [(entry.position, key_hash) for entry, key_hash in taken])
            entries = [entry for entry, _ in taken]
            give(member, entries, [entry.messages for entry in entries])
            if may_be_chunks:
                for index, chunk in chunks_in(entries).items():
                    entry, key_hash = taken[index]
                    self._unfinished.sent(entry.position, key_hash, chunk)
            if waiting and self._state.options.batch_index_ack and member.ready:
                # Partly acknowledged batches: fewer messages were sent than charged.
                self._state.epochs.note_changed()
        for entry, key_hash in waiting:
            draining.blocks(key_hash)
            self.replay.add(entry.position, key_hash)

    def look(self, entry: Entry) -> MessageMetadata | None:
        """The entry's metadata: the key needs them anyway."""
        try:
            return entry.head
        except RemoteProtocolError:
            return None

    def hash_of(self, entry: Entry) -> int:
        """The entry's hash, as the selector computes it."""
        return slot_of(entry, self.selector.first_slot)
