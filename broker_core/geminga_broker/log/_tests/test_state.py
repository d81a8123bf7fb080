"""The table of states, walked exhaustively."""

from __future__ import annotations

import pytest

from geminga_broker.log.options import Rollover
from geminga_broker.log.state import (
    CURSOR_TRANSITIONS,
    TRANSITIONS,
    CursorEvent,
    CursorState,
    LogState,
    check_transition,
)


def test_every_pair_is_decided() -> None:
    for old in LogState:
        for new in LogState:
            if new in TRANSITIONS[old]:
                check_transition(old, new)
            else:
                with pytest.raises(AssertionError):
                    check_transition(old, new)


def test_ends_stay_ends() -> None:
    assert TRANSITIONS[LogState.CLOSED] == frozenset()
    for final in (LogState.TERMINATED, LogState.FENCED):
        assert not TRANSITIONS[final] & {LogState.OPEN, LogState.ROLLING, LogState.NO_LEDGER}
    for state in LogState:
        assert state is LogState.CLOSED or LogState.CLOSED in TRANSITIONS[state]


def test_a_cursor_is_written_again_only_if_its_removal_failed() -> None:
    assert set(CURSOR_TRANSITIONS) == set(CursorEvent)
    for event, after in CURSOR_TRANSITIONS.items():
        kept = CursorState.KEPT in after.values()
        assert kept == (event is CursorEvent.REMOVE_FAILED)
        assert after.get(CursorState.RELEASED) in (None, CursorState.RELEASED)


@pytest.mark.parametrize(
    ("entries", "size_bytes", "age_s", "due"),
    [
        (0, 0, 1e9, False),
        (1, 1, 599, False),
        (50_000, 1, 599, False),
        (50_000, 1, 600, True),
        (1, 2 << 30, 600, True),
        (1, 1, 14_399, False),
        (1, 1, 14_400, True),
    ],
)
def test_rollover(entries: int, size_bytes: int, age_s: float, due: bool) -> None:
    assert Rollover().is_due(entries, size_bytes, age_s) == due
