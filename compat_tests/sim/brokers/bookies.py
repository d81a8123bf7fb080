"""One bookie in memory, behind the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import AddDone, Completion, complete

from ..ledgers.bookies import Life, Resettable
from ..ledgers.wire import Wire

BOOKIE = "bookie:3181"


class PromptBookie(MemoryBookie):
    """Its completions come at once: the network brings delays enough."""

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
        self._completed = [Completion(_nobody, 0, 0, None)]  # so that no turn is asked for
        super().add(ledger_id, master_key, first_entry_id, packets, done, recovery=recovery)
        completed, self._completed = self._completed[1:], []
        complete(completed)


def _nobody(_first: int, _count: int, _error: object) -> None:
    """Nobody waits."""


class Bookie:
    """A machine for `Wire`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.bookie_id = BOOKIE
        self.refuses = True
        self.wires: list[Resettable] = []
        self.acknowledged: dict[int, set[int]] = {}
        self.memory = PromptBookie(BOOKIE)
        self.life: Life | None = Life(self.memory, nursery)


class Door(Wire):
    """The port of one broker, whose time-outs don't come while it stands still."""

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        network, owner = self._network, self._owner
        network.timeline.at(trio.current_time() + wait_s, lambda: network._arrive(owner, call))
