"""Shared: entries go to members by turns, and are acknowledged individually (BR-30, BR-33)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from geminga_broker.log.api import Entry
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription.chunks import ChunkKeeper, chunks_in
from geminga_broker.subscription.replay import NO_HASH, ReplayQueue
from geminga_broker.subscription.state import M, State
from geminga_broker.subscription.strategies.choose import Give, RoundRobin
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_broker.topic.stats import SubscriptionStats
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


class InTurn(Generic[M]):
    """Round robin without state of entries."""

    sub_type: int = SubType.Shared

    def __init__(self, members: list[M], run_entries_max: int) -> None:
        self.round_robin = RoundRobin(run_entries_max)
        self._members = members

    def admit(self, member: M, policy: KeySharedPolicy) -> None:
        """Any member may join."""
        self._members.append(member)

    def remove(self, member: M) -> None:
        """A member left."""
        self._members.remove(member)

    def assign(self, entries: Sequence[Entry], give: Give[M]) -> Sequence[Entry]:
        """Give entries by turns, as permits allow; returns the rest."""
        counts = [entry.messages for entry in entries]
        end = 0
        for member, start, end in self.round_robin.assign(counts, self._members):
            give(member, entries[start:end], counts[start:end])
        return entries[end:]


class Shared(Generic[M]):
    """Round robin, with a message's chunks together, and resent entries by position.
    Follows PersistentDispatcherMultipleConsumers.
    """

    sub_type: int = SubType.Shared
    mode: str | None = None
    out_of_order = False
    reads_on = False

    def __init__(self, state: State[M]) -> None:
        self.replay = ReplayQueue()
        self._state = state
        self._turns: InTurn[M] = InTurn(state.members, state.options.round_robin_entries_max)
        self.admit = self._turns.admit
        self._chunks: ChunkKeeper[M] = ChunkKeeper(self._turns.round_robin)

    @property
    def waiting(self) -> int:
        """Entries that were read and wait to be sent."""
        return len(self.replay) + len(self._chunks)

    @property
    def full(self) -> bool:
        """Whether too many chunks wait to read new entries."""
        return self._chunks.full

    @property
    def delay_room(self) -> int:
        """How many due entries may be queued."""
        return 2 * self._state.options.dispatch_entries_max - len(self.replay)

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Always: Key_Shared policies are ignored."""
        return True

    def describe(self, stats: SubscriptionStats) -> None:
        """Adds nothing."""

    # ---- members ----

    def remove(self, member: M, held: Iterable[Position] | None) -> None:
        """A member left; its held entries and waiting chunks go to the others. `held` is None
        without others.
        """
        self._turns.remove(member)
        parked = self._chunks.forget(member)
        if held is not None:
            self.put_back(parked)
            self.put_back(held)

    def emptied(self) -> None:
        """No member is left."""

    # ---- entries that wait ----

    def put_back(self, positions: Iterable[Position]) -> None:
        """Queue entries that a member gave back."""
        for position in positions:
            self.replay.add(position)

    def released(self, position: Position) -> bool:
        """An entry is no longer held; returns whether that makes entries sendable."""
        return False

    def acknowledged_unheld(self, position: Position) -> None:
        """An entry without holder was acknowledged."""
        self._chunks.discard(position)

    def discard_where(self, gone: Callable[[Position], bool]) -> None:
        """An admin operation or a seek acknowledged entries."""
        self._chunks.discard_where(gone)

    def reset(self) -> None:
        """Forget waiting entries, which are reread."""
        self.replay.clear()
        self._chunks.clear_parked()

    # ---- a round ----

    def plan(self) -> fx.Read | fx.ReadAt | None:
        """The read for the members with room."""
        ready = [member for member in self._state.members if member.ready]
        for position in self._chunks.take_due():
            self.replay.add(position)
        permits = sum([member.room for member in ready])
        average = sum([member.average for member in ready]) / len(ready)
        wanted = self._state.entries_wanted(permits, average)
        bytes_max = self._state.bytes_max
        if self.replay:
            return fx.ReadAt(self.replay.first(wanted), bytes_max)
        return fx.Read(wanted, bytes_max)

    def plain_hashes(self, entries: Sequence[Entry]) -> Sequence[int] | None:
        """None: there are no hashes."""
        return None

    def assign(
        self,
        entries: Sequence[Entry],
        hashes: Sequence[int] | None,
        may_be_chunks: bool,
        give: Give[M],
    ) -> Sequence[Entry]:
        """Give entries by turns, chunks by message; returns those that no member can take."""
        if not may_be_chunks or not (chunks := chunks_in(entries)):
            return self._turns.assign(entries, give)
        items = [(entry.position, entry.messages) for entry in entries]
        end, again = self._chunks.give_out(
            items,
            chunks,
            self._state.members,
            lambda member, start, end: give(
                member, entries[start:end], [messages for _, messages in items[start:end]]
            ),
            next(iter(self.replay.first(1)), None),
        )
        self.put_back(again)
        return entries[end:]

    def assign_again(self, entries: Sequence[Entry], give: Give[M]) -> Sequence[Entry]:
        """Give queued entries to members; the rest is queued again, and returned."""
        left = self.assign(entries, None, True, give)
        self.put_back([entry.position for entry in left])
        return left

    def look(self, entry: Entry) -> MessageMetadata | None:
        """Metadata of an entry that may be a marker, delayed or a chunk; None if it is neither."""
        return entry.special

    def hash_of_held(self, position: Position) -> int:
        """A constant: there are no hashes."""
        return NO_HASH

    def hash_of(self, entry: Entry) -> int:
        """The constant that delayed entries are tracked with."""
        return NO_HASH
