"""A bookie in memory that asks its subclass about each run of adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import AddDone


@dataclass(frozen=True, slots=True)
class Add:
    """The arguments of one `BookiePort.add`."""

    ledger_id: int
    master_key: bytes
    first_entry_id: int
    packets: Sequence[bytes]
    done: AddDone
    recovery: bool

    @property
    def count(self) -> int:
        """Entries of the run."""
        return len(self.packets)

    def answer(self, error: BookkeeperError | None) -> None:
        """Complete the whole run, whether or not it was stored."""
        self.done(self.first_entry_id, self.count, error)


class AskedBookie(MemoryBookie):
    """Stores what `take` gives to `store`."""

    def add(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        """See `BookiePort.add`."""
        self.take(Add(ledger_id, master_key, first_entry_id, packets, done, recovery))

    def take(self, add: Add) -> None:
        """Called for each run."""
        self.store(add)

    def store(self, add: Add) -> None:
        """As a bookie that nothing ails."""
        super().add(
            add.ledger_id,
            add.master_key,
            add.first_entry_id,
            add.packets,
            add.done,
            recovery=add.recovery,
        )


def nobody(_first: int, _count: int, _error: BookkeeperError | None) -> None:
    """The one who asked doesn't hear the answer."""
