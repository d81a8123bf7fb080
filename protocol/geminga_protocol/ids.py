"""Distinct types for the numbers that must not be mixed up (spec PR-11)."""

from __future__ import annotations

from typing import NamedTuple, NewType

LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)
RequestId = NewType("RequestId", int)


class Position(NamedTuple):
    """Where an entry stands in a managed ledger; positions order as they were written.

    An entry id of -1 means "before the first entry of that ledger".
    """

    ledger_id: LedgerId
    entry_id: EntryId

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(LedgerId(-1), EntryId(-1))
LATEST = Position(LedgerId((1 << 63) - 1), EntryId((1 << 63) - 1))
