"""The table of a producer's states."""

from __future__ import annotations

import pytest

from geminga_broker.topic.producer_state import TRANSITIONS, ProducerEvent, ProducerState

GONE = {ProducerState.CLOSED, ProducerState.BROKEN}


def test_who_left_never_comes_back() -> None:
    assert set(TRANSITIONS) == set(ProducerEvent)
    for after in TRANSITIONS.values():
        assert all(new in GONE for old, new in after.items() if old in GONE)


@pytest.mark.parametrize("state", ProducerState)
def test_a_client_may_close_at_any_time(state: ProducerState) -> None:
    assert state in TRANSITIONS[ProducerEvent.FINISH]


def test_only_one_that_left_is_broken() -> None:
    assert set(TRANSITIONS[ProducerEvent.WRITE_FAILED]) == GONE
