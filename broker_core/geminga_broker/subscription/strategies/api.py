"""What the tracking machine needs of a strategy and of delayed delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Protocol, TypeAlias

from geminga_broker.log.api import Entry
from geminga_broker.subscription.state import M
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.strategies.shared import Shared
from geminga_protocol.ids import Position


class Delays(Sized, Protocol):
    """Entries that wait for their time: `DelayedDelivery` without its I/O."""

    @property
    def idle(self) -> bool:
        """Whether CollectDue would do nothing."""

    @property
    def full(self) -> bool:
        """Whether reading further has to wait."""

    @property
    def next_due_ms(self) -> int | None:
        """Wall clock time of the next, None if there is none."""

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""

    def __contains__(self, position: Position) -> bool:
        """Whether it waits."""

    def add(self, due_ms: int, position: Position, key_hash: int) -> None:
        """Keep an entry until then."""

    def discard(self, position: Position) -> None:
        """An entry was acknowledged, though no member holds it."""

    def forget_deleted(self) -> None:
        """Mark-delete was moved from outside."""

    def untracked(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Without those that wait here."""

    def read_again_beside(self, held: Iterable[Position]) -> None:
        """All is read again from the log, while members hold these entries."""

    def unheld(
        self, entries: Sequence[Entry], holds: Callable[[Position], bool]
    ) -> Sequence[Entry]:
        """Without those that were sent before the log was read again, and are not to be now."""


Sharing: TypeAlias = Shared[M] | KeyShared[M]
"""How members share the entries."""
