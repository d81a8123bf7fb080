"""A round of Shared or Key_Shared: which entries to read, and their receivers (BR-30, BR-34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.entry_filters import RESCHEDULE_MS
from geminga_broker.subscription.holdings import Holdings
from geminga_broker.subscription.state import NO_ACK_SETS, M
from geminga_broker.subscription.strategies.choose import Give
from geminga_protocol.ids import EARLIEST


class Rounds(Generic[M]):
    """Waiting entries first, then new ones. Between two events of a round the holdings may change:
    epochs show relevant changes.
    """

    def __init__(self, holdings: Holdings[M]) -> None:
        self._holdings = holdings
        self._state = holdings.state
        self._strategy = holdings.strategy
        self._delays = holdings.delays
        self._asked = 0
        """Epoch of the last ReadAt."""
        self._checked = 0
        """Epoch of the last check that the new entries, or the rest of them, are unacknowledged."""
        self._goal = 0
        """The number of new entries that this round wants."""
        self._got: Sequence[Entry] = ()
        """The new entries read in this round."""
        self._may_be_chunks = False
        """Whether there may be chunks among them."""
        self._now_ms = 0
        self._available = True
        """Whether the log may have new entries."""

    def fail(self, effects: list[fx.Effect[M]]) -> None:
        """A read failed: send the entries read before; the next round reads again."""
        if self._state.epochs.stale:
            self._got = ()
            effects.append(fx.AGAIN)
        elif self._got:
            self._give_new(self._got, effects)

    def begin(self, event: ev.RoundBegun, effects: list[fx.Effect[M]]) -> None:
        """Choose the round's work."""
        self._state.allowance, self._state.paced = event.allowance, event.paced
        self._got = ()
        self._available = event.available
        self._apply_reset(effects)
        if self._delays.idle:
            self._plan(effects)
        else:
            effects.append(fx.CollectDue(self._strategy.delay_room))

    def due(self, event: ev.DueCollected, effects: list[fx.Effect[M]]) -> None:
        """Queue due entries."""
        if event.found is None:
            held = [p for member in self._state.members for p in member.pending]
            self._holdings.held_upto = max(held, default=EARLIEST)
            self._holdings.reset()
            self._apply_reset(effects)
        elif event.found:
            for position, key_hash in event.found:
                self._strategy.replay.add(position, key_hash)
            self._state.epochs.note_changed()
        self._plan(effects)

    def _apply_reset(self, effects: list[fx.Effect[M]]) -> None:
        """Forget waiting entries, which are reread. Delayed entries stay."""
        epochs = self._state.epochs
        if epochs.stale:
            epochs.rewound = epochs.now
            self._strategy.reset()
            self._state.unsent = ()
            self._state.provisional = dict.fromkeys(self._state.provisional)
            self._available = True
            effects.append(fx.REWIND)

    def _plan(self, effects: list[fx.Effect[M]]) -> None:
        state = self._state
        ready = any(member.ready for member in state.members)
        plan = self._strategy.plan() if ready and not self._holdings.blocked else None
        if plan is None:
            self._idle(effects)
        elif isinstance(plan, fx.ReadAt):
            self._asked = state.epochs.now
            effects.append(plan)
        elif state.unsent:
            self._give_unsent(effects)
        elif not self._available or self._delays.full or self._strategy.full:
            self._idle(effects)
        else:
            self._goal = plan.entries_max
            self._checked = state.epochs.now
            self._ask(effects)

    def _ask(self, effects: list[fx.Effect[M]]) -> None:
        """Read as many new entries as the round lacks."""
        state = self._state
        if len(self._delays):
            effects.append(fx.PASS_OVER)
        wanted = min(self._goal - len(self._got), state.entries_max)
        effects.append(fx.Read(wanted, state.bytes_max, state.readable_upto))

    def _idle(self, effects: list[fx.Effect[M]]) -> None:
        """End the round; wake for due entries only if a member can take them."""
        due_ms = self._delays.next_due_ms
        if (
            due_ms is not None
            and self._strategy.delay_room > 0
            and not self._holdings.over_limit
            and any(member.ready for member in self._state.members)
        ):
            effects.append(fx.WakeAt(due_ms))

    def read(self, event: ev.EntriesRead, effects: list[fx.Effect[M]]) -> None:
        """Handle new entries, or the end of the log."""
        state = self._state
        self._now_ms = event.now_ms
        self._available = event.available
        if state.epochs.stale:
            self._got = ()
            effects.append(fx.AGAIN)
            return
        kept = self._holdings.unheld(event.entries)
        got = self._got = [*self._got, *kept] if self._got else kept
        more = bool(event.entries) and not kept
        if kept and self._strategy.reads_on and len(got) < self._goal:
            more = event.available and sum([e.size for e in got]) < state.bytes_max
        if more and not self._delays.full:
            self._ask(effects)
        elif got:
            self._give_new(got, effects)
        else:
            self._idle(effects)

    def _give_new(self, entries: Sequence[Entry], effects: list[fx.Effect[M]]) -> None:
        """Send as many new entries as members take."""
        state = self._state
        self._got = ()
        entries = self._unacknowledged(entries)
        hashes = None
        self._may_be_chunks = False
        if not (len(self._delays) or state.options.entry_filters):
            hashes = self._strategy.plain_hashes(entries)
        if hashes is None:
            entries = self._plain(entries, effects)
        self._assign(entries, hashes, len(entries), effects)

    def _give_unsent(self, effects: list[fx.Effect[M]]) -> None:
        """Send entries left by an earlier round."""
        unsent = self._state.unsent
        self._assign(self._unacknowledged(unsent), None, len(unsent), effects)

    def _unacknowledged(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Without entries that were acknowledged (also pending) while they were being read or
        waited for permits.
        """
        epochs = self._state.epochs
        if epochs.acked > self._checked:
            deleted = self._state.acknowledged.is_deleted
            entries = [entry for entry in entries if not deleted(entry.position)]
        self._checked = epochs.now
        return self._holdings.without_pending(entries)

    def _assign(
        self,
        entries: Sequence[Entry],
        hashes: Sequence[int] | None,
        count: int,
        effects: list[fx.Effect[M]],
    ) -> None:
        give = self._giver(effects)
        left = self._strategy.assign(entries, hashes, self._may_be_chunks, give)
        self._state.unsent = left
        more = self._available or len(left) or self._strategy.waiting
        self._end((len(left) < count or not count) and bool(more), effects)

    def _end(self, again: bool, effects: list[fx.Effect[M]]) -> None:
        if again:
            effects.append(fx.AGAIN)
        else:
            self._idle(effects)

    def read_again(self, event: ev.EntriesReadAgain, effects: list[fx.Effect[M]]) -> None:
        """Send waiting entries, without those acknowledged in the meantime."""
        epochs, replay = self._state.epochs, self._strategy.replay
        self._now_ms = event.now_ms
        left: Sequence[Entry] = ()
        # If an earlier entry may have been queued since, leave it to the next round.
        if not epochs.stale and epochs.put_back <= self._asked:
            still = [entry for entry in event.entries if entry.position in replay]
            for position in event.positions:
                replay.discard(position)
            kept = self._filter(self._holdings.without_pending(still), effects)
            left = self._strategy.assign_again(kept, self._giver(effects))
        self._end(len(left) < len(event.positions), effects)

    def _giver(self, effects: list[fx.Effect[M]]) -> Give[M]:
        """A function that charges a member for entries, tracks and sends them."""
        state, redeliveries = self._state, self._holdings.counts
        parts = state.options.batch_index_ack

        def give(member: M, entries: Sequence[Entry], counts: Sequence[int]) -> None:
            acked = NO_ACK_SETS
            if parts:
                counts, acked = state.without_acked(entries, counts)
            messages = sum(counts)
            member.track(entries, counts, messages)
            effects.append(fx.Send(member, entries, messages, redeliveries, acked))

        return give

    def _plain(self, entries: Sequence[Entry], effects: list[fx.Effect[M]]) -> Sequence[Entry]:
        """The entries without markers (acknowledged here) and delayed ones (tracked here)."""
        plain: list[Entry] = []
        markers: list[Ack] = []
        look = self._strategy.look
        delayed_delivery = self._state.options.delayed_delivery
        delays = self._delays
        for entry in delays.untracked(entries):
            metadata = look(entry)
            if metadata is None:
                plain.append(entry)
                continue
            self._may_be_chunks |= metadata.HasField("chunk_id")
            if metadata.HasField("marker_type"):
                markers.append(Ack(entry.position))
            elif (due_ms := metadata.deliver_at_time) > self._now_ms and delayed_delivery:
                delays.add(due_ms, entry.position, self._strategy.hash_of(entry))
            else:
                plain.append(entry)
        if markers:
            effects.append(fx.Acknowledge(markers))
        if delays.unsaved:
            effects.append(fx.SAVE_DELAYS)
        return self._filter(plain, effects)

    def _filter(self, entries: Sequence[Entry], effects: list[fx.Effect[M]]) -> Sequence[Entry]:
        """The entries that filters accept; others are acknowledged, or wait like delayed ones."""
        judged = self._state.judge(entries)
        if judged is None:
            return entries
        if judged.rejected:
            effects.append(fx.Acknowledge(judged.rejected))
        for entry in judged.rescheduled:
            due_ms = self._now_ms + RESCHEDULE_MS
            self._delays.add(due_ms, entry.position, self._strategy.hash_of(entry))
        if self._delays.unsaved:
            effects.append(fx.SAVE_DELAYS)
        return judged.accepted
