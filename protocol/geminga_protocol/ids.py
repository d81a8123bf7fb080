"""Positions of entries (spec PR-11)."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """Where an entry stands in a managed ledger; positions order as they were written.

    An entry id of -1 means "before the first entry of that ledger".
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
LATEST = Position((1 << 63) - 1, (1 << 63) - 1)
