"""Positions of entries (spec PR-11)."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """An entry's place in a managed ledger; positions sort in the order of writing.

    An entry id of -1 means "before the first entry of that ledger".
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
LATEST = Position((1 << 63) - 1, (1 << 63) - 1)
