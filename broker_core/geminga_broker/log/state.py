"""States of a log, and what each may become (pure; spec BR-01, BR-02)."""

from __future__ import annotations

from enum import Enum


class LogState(Enum):
    """Where a log stands. Only OPEN has a ledger that takes entries."""

    OPEN = "open"
    ROLLING = "rolling"
    """The ledger is being closed and the next one made; appends wait."""
    NO_LEDGER = "no ledger"
    """The next ledger could not be made; a later append tries again."""
    TERMINATED = "terminated"
    FENCED = "fenced"
    CLOSED = "closed"


TRANSITIONS: dict[LogState, frozenset[LogState]] = {
    LogState.OPEN: frozenset(
        {LogState.ROLLING, LogState.TERMINATED, LogState.FENCED, LogState.CLOSED}
    ),
    LogState.ROLLING: frozenset(
        {
            LogState.OPEN,
            LogState.NO_LEDGER,
            LogState.TERMINATED,
            LogState.FENCED,
            LogState.CLOSED,
        }
    ),
    LogState.NO_LEDGER: frozenset(
        {LogState.ROLLING, LogState.TERMINATED, LogState.FENCED, LogState.CLOSED}
    ),
    LogState.TERMINATED: frozenset({LogState.FENCED, LogState.CLOSED}),
    LogState.FENCED: frozenset({LogState.CLOSED}),
    LogState.CLOSED: frozenset(),
}
"""What may follow each state."""


def check_transition(old: LogState, new: LogState) -> None:
    """Raises AssertionError for a change that can't be: a defect, not an outcome."""
    assert new in TRANSITIONS[old], f"a log can't go from {old.value} to {new.value}"
