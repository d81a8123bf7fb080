"""States of a log and of its cursors, and their transitions (pure; spec BR-01 to BR-05)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class LogState(Enum):
    """State of a log. Only OPEN has a ledger that takes entries."""

    OPEN = "open"
    ROLLING = "rolling"
    """The ledger is being closed and the next one created; appends wait."""
    NO_LEDGER = "no ledger"
    """The next ledger could not be created; a later append retries."""
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
"""The states that may follow each state."""


def check_transition(old: LogState, new: LogState) -> None:
    """Raises AssertionError for an invalid change, which is a defect."""
    assert new in TRANSITIONS[old], f"a log can't go from {old.value} to {new.value}"


class CursorState(Enum):
    """State of a cursor's storage. It is written only if KEPT."""

    KEPT = "kept"
    REMOVING = "being removed"
    RELEASED = "released"
    """Not stored, deleted, or left to the log's next owner."""


class CursorEvent(Enum):
    """Events of a cursor's storage."""

    REMOVE = "its removal begins"
    REMOVE_FAILED = "its removal failed"
    REMOVED = "it is deleted"
    HANDED_OVER = "its last write is done"
    FENCED = "another broker owns its log"


_KEPT, _REMOVING, _RELEASED = CursorState

CURSOR_TRANSITIONS: Mapping[CursorEvent, Mapping[CursorState, CursorState]] = {
    CursorEvent.REMOVE: {_KEPT: _REMOVING},
    CursorEvent.REMOVE_FAILED: {_REMOVING: _KEPT, _RELEASED: _RELEASED},
    CursorEvent.REMOVED: {_REMOVING: _RELEASED, _RELEASED: _RELEASED},
    # A removal that began during the last write continues.
    CursorEvent.HANDED_OVER: {_KEPT: _RELEASED, _REMOVING: _REMOVING, _RELEASED: _RELEASED},
    CursorEvent.FENCED: dict.fromkeys(CursorState, _RELEASED),
}
"""The state after each event; an event that isn't listed for a state is a defect."""
