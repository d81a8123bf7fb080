"""Shared: entries go to consumers in turn, acknowledged one by one (spec BR-30, BR-33, BR-34)."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription.chunks import ChunkKeeper, chunks_in
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.delayed_delivery import DelayedDelivery
from geminga_broker.subscription.entry_filters import RESCHEDULE_MS
from geminga_broker.subscription.pump import DispatchContext, Dispatcher
from geminga_broker.subscription.replay import NO_HASH, ReplayQueue, Replays, read_some
from geminga_broker.subscription.special_metadata import special
from geminga_broker.subscription.strategies.choose import RoundRobin
from geminga_broker.topic.api import SubType
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


class SharedDispatcher(Dispatcher):
    """Follows PersistentDispatcherMultipleConsumers: replays by position, then new entries."""

    def __init__(self, context: DispatchContext) -> None:
        super().__init__(context)
        options = context.options
        self._again = ReplayQueue()
        self.replay: Replays = self._again
        self.counts: dict[Position, int] = {}
        """How often an entry was sent before; bounded by the unacked limits."""
        self._delayed = DelayedDelivery(
            context.cursor, context.environment.nursery, options.delayed_entries_max, context.wake
        )
        self._round_robin = RoundRobin(options.round_robin_entries_max)
        self._chunks: ChunkKeeper[Consumer] = ChunkKeeper(self._round_robin)
        self._may_be_chunks = False
        """Whether some of what was read last may be."""
        self._acked_unsent = False
        """Whether entries that nobody holds were acknowledged: some may just be read."""
        self._blocked = False
        self.put_back_count = 0

    # ---- state ----

    @property
    def sub_type(self) -> int:
        """Shared."""
        return SubType.Shared

    @property
    def unacked(self) -> int:
        """Messages sent and not acknowledged."""
        return sum(consumer.unacked for consumer in self.consumers)

    @property
    def blocked(self) -> bool:
        """Whether the subscription's unacked limit is reached; ends at half of it."""
        broker = self.environment.unacked_limit
        if broker is not None and broker.pauses(self):
            return True
        limit = self.options.unacked_per_subscription_max
        if not limit:
            self._blocked = False
        elif (unacked := self.unacked) >= limit:
            self._blocked = True
        elif unacked < limit / 2:
            self._blocked = False
        return self._blocked

    @property
    def delayed(self) -> int:
        """Entries that wait for their time."""
        return len(self._delayed)

    @property
    def delayed_bytes(self) -> int:
        """About how much memory it takes to know them."""
        return self._delayed.size_bytes

    @property
    def replaying(self) -> int:
        """Entries that wait to be sent again."""
        return len(self.replay) + len(self._chunks)

    @property
    def next_due_ms(self) -> int | None:
        """When the next delayed entry is due; nothing to wait for if nobody can take it."""
        if (
            self.delay_room > 0
            and not self._blocked
            and any(consumer.ready for consumer in self.consumers)
        ):
            return self._delayed.next_due_ms
        return None

    @property
    def delay_room(self) -> int:
        """How many entries that are due may be queued."""
        return 2 * self.options.dispatch_entries_max - len(self.replay)

    def begin_round(self) -> None:
        """A reset forgets replays too: they are read again. What is delayed goes on waiting."""
        if self.stale:
            self.replay.clear()
            self._chunks.clear_parked()
        super().begin_round()

    def forget_deleted(self) -> None:
        """What was read, what is delayed, and chunks that wait."""
        super().forget_deleted()
        self._delayed.forget_deleted()
        self._acked_unsent = True
        self._chunks.discard_where(self.cursor.is_deleted)

    # ---- consumers ----

    def remove(self, consumer: Consumer) -> None:
        """What it held goes to the others; with nobody left all starts over at the next."""
        self.consumers.remove(consumer)
        parked = self._chunks.forget(consumer)
        if self.consumers and not self.emptying:
            for position in parked:
                self.put_back_count += 1
                self.replay.add(position, NO_HASH)
            for position in consumer.pending:
                self.put_back(consumer, position)
        consumer.pending.clear()
        if not self.consumers:
            self.forget_in_flight()
            self.counts.clear()
            self.reset()
        consumer.unacked = 0
        self._count_unacked()
        self._wake()

    def put_back(self, consumer: Consumer, position: Position) -> None:
        """Queue an entry that this consumer held."""
        self.put_back_count += 1
        self.replay.add(position, NO_HASH)

    def forget_in_flight(self) -> None:
        """Nobody holds anything any more."""

    def released(self, consumer: Consumer, position: Position) -> None:
        """The consumer holds this entry no longer."""

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Queue what this consumer holds of these; others' and acknowledged ones are left alone."""
        held = consumer.pending
        wanted = list(held) if positions is None else [p for p in positions if p in held]
        messages = 0
        for position in wanted:
            messages += held.pop(position, 0)
            if self.cursor.is_deleted(position):
                # Acknowledged while it was read, so that nobody was known to hold it.
                self.released(consumer, position)
                continue
            self.counts[position] = self.counts.get(position, 0) + 1
            self.put_back(consumer, position)
        consumer.redelivered.add(messages, 0)
        consumer.release(messages)
        self._count_unacked()
        self._wake()

    def _count_unacked(self) -> None:
        """Tell the broker's limit, if there is one."""
        limit = self.environment.unacked_limit
        if limit is not None:
            limit.count(self, self.unacked, self._wake)

    # ---- acknowledgements ----

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Individual only. An entry may be held by another consumer than the one that answers."""
        assert not cumulative, "consumers refuse cumulative acks of this type"
        was_blocked = self._blocked
        parts: list[Position] = []
        for ack in acks:
            if ack.ack_set:
                parts.append(ack.position)
            else:
                self._acknowledged(consumer, ack.position)
        if not consumer.pending:
            consumer.pending.clear()  # gives back what the table grew by in a burst
        self.cursor.ack(self.recordable(acks))
        if self.options.batch_index_ack:
            for position in parts:
                self._acknowledged_part(consumer, position)
        self._count_unacked()
        if was_blocked and not self.blocked:
            self._wake()

    def _acknowledged(self, consumer: Consumer, position: Position) -> None:
        """Nothing of the entry is to be sent any more."""
        owner = consumer
        if position not in owner.pending:
            owner = self._holder(position) or consumer
        messages = owner.pending.pop(position, None)
        if messages is not None:
            self.released(owner, position)
            owner.release(messages)
        else:
            self._acked_unsent = True
            self._delayed.discard(position)
            self._chunks.discard(position)
        if self.counts:
            self.counts.pop(position, None)
        if self.replay:
            self.replay.discard(position)

    def _acknowledged_part(self, consumer: Consumer, position: Position) -> None:
        """The cursor knows what is left of the batch, whichever acknowledgements made it so."""
        if self.cursor.is_deleted(position):
            self._acknowledged(consumer, position)
            return
        owner = consumer if position in consumer.pending else self._holder(position)
        words = self.cursor.ack_set(position)
        if owner is not None and words:
            held = owner.pending[position]
            left = owner.pending[position] = min(held, ack_sets.cardinality(words))
            owner.release(held - left)

    def _holder(self, position: Position) -> Consumer | None:
        for consumer in self.consumers:
            if position in consumer.pending:
                return consumer
        return None

    def _is_given(self, position: Position) -> bool:
        return position in self.replay or self._holder(position) is not None

    # ---- dispatch ----

    async def round(self) -> bool:
        """Replays if there are any, else new entries."""
        self.begin_round()
        await self._collect_due()
        for position in self._chunks.take_due():
            self.replay.add(position, NO_HASH)
        ready = [consumer for consumer in self.consumers if consumer.ready]
        if not ready or self.blocked:
            return False
        permits = sum(consumer.room for consumer in ready)
        average = sum(consumer.average for consumer in ready) / len(ready)
        wanted = self.entries_wanted(permits, average)
        if self.replay:
            return await self._round_of_replays(wanted)
        entries = self.carry
        self.carry = ()
        if not entries:
            entries = await self.read_on(wanted)
            if not entries or self.stale:
                return self.stale
            entries = self._plain(entries)
        left = self._give_out(self.unacknowledged(entries), self._may_be_chunks)
        self.carry = left
        return len(left) < len(entries) or not entries

    async def read_on(self, wanted: int) -> Sequence[Entry]:
        """New entries; none if delays are full, or too many chunks wait."""
        delayed = self._delayed
        if delayed.full or self._chunks.full:
            return []
        if delayed:
            delayed.skip_tracked()
        wanted = min(wanted, self.entries_max)
        while self.cursor.available():
            entries = await self.cursor.read(entries_max=wanted, bytes_max=self.bytes_max)
            kept = delayed.unheld(entries, self._is_given)
            if kept or not entries or self.stale:
                return kept
        return []

    async def _round_of_replays(self, wanted: int) -> bool:
        positions = self._again.first(wanted)
        left = self._give_out(await self.read_again(positions), True)
        for entry in left:
            self.replay.add(entry.position, NO_HASH)
        return len(left) < len(positions)

    async def read_again(self, positions: Sequence[Position]) -> Sequence[Entry]:
        """Entries of the replay queue, taken out of it; those acknowledged meanwhile left out."""
        put_back = self.put_back_count
        positions, entries = await read_some(self.cursor, positions, self.bytes_max)
        if self.stale or put_back != self.put_back_count:
            # Something earlier may have been queued meanwhile: look again.
            return []
        still = [entry for entry in entries if entry.position in self.replay]
        for position in positions:
            self.replay.discard(position)
        return self.filter(still)

    def reschedule(self, entries: Sequence[Entry]) -> bool:
        """They wait as if they were delayed."""
        due_ms = self.environment.now_ms() + RESCHEDULE_MS
        for entry in entries:
            self._delayed.add(due_ms, entry.position, self.hash_of(entry))
        return True

    def unacknowledged(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Without those that were acknowledged while they were read or waited for permits."""
        if not self._acked_unsent:
            return entries
        self._acked_unsent = False
        deleted = self.cursor.is_deleted
        return [entry for entry in entries if not deleted(entry.position)]

    def _give_out(self, entries: Sequence[Entry], may_be_chunks: bool) -> Sequence[Entry]:
        """Send by turns, chunks by message; answers what nobody could take."""
        end = 0
        if may_be_chunks and (chunks := chunks_in(entries)):
            waits = next(iter(self._again.first(1)), None)
            end, again = self._chunks.give_out(
                [(entry.position, entry.messages) for entry in entries],
                chunks,
                self.consumers,
                lambda consumer, start, end: self.send(consumer, entries[start:end]),
                waits,
            )
            for position in again:
                self.replay.add(position, NO_HASH)
            return entries[end:]
        runs = self._round_robin.assign([entry.messages for entry in entries], self.consumers)
        for consumer, start, end in runs:
            self.send(consumer, entries[start:end])
        return entries[end:]

    def send(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        """To one consumer, tracked."""
        consumer.send(
            entries,
            track=True,
            redelivery_counts=self.counts,
            acknowledged=self.ack_sets_of(entries),
        )
        self._count_unacked()

    def _plain(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Take out markers (acknowledged) and what is to be delivered later (kept)."""
        now_ms = 0
        plain: list[Entry] = []
        markers: list[Ack] = []
        look = self.look
        delayed = self._delayed
        self._may_be_chunks = False
        for entry in delayed.untracked(entries):
            metadata = look(entry)
            if metadata is None:
                plain.append(entry)
                continue
            self._may_be_chunks |= metadata.HasField("chunk_id")
            if metadata.HasField("marker_type"):
                markers.append(Ack(entry.position))
            elif not metadata.deliver_at_time or not self.options.delayed_delivery:
                plain.append(entry)
            else:
                now_ms = now_ms or self.environment.now_ms()
                if metadata.deliver_at_time > now_ms:
                    due_ms = metadata.deliver_at_time
                    delayed.add(due_ms, entry.position, self.hash_of(entry))
                else:
                    plain.append(entry)
        if markers:
            self.cursor.ack(markers)
        return self.filter(plain)

    def look(self, entry: Entry) -> MessageMetadata | None:
        """Metadata of an entry that may be a marker, delayed or a chunk, None if it is neither."""
        return special(entry.data)

    def hash_of(self, entry: Entry) -> int:
        """What replays are queued under."""
        return NO_HASH

    async def _collect_due(self) -> None:
        """Queue entries whose time has come."""
        await self._delayed.restore()
        self._delayed.save_pending()
        if not self._delayed or self.delay_room <= 0:
            return
        found = await self._delayed.collect(self.environment.now_ms(), self.delay_room)
        if found is None:
            held = (position for consumer in self.consumers for position in consumer.pending)
            self._delayed.read_again_beside(held)
            self.reset()
            self.begin_round()
            return
        for position, key_hash in found:
            self.replay.add(position, key_hash)
        if found:
            self.kicked = True
