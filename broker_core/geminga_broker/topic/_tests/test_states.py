"""The tables of states of producers and topics."""

from __future__ import annotations

import pytest

from geminga_broker.topic.states import (
    PRODUCER_TRANSITIONS,
    TOPIC_TRANSITIONS,
    ProducerEvent,
    ProducerState,
    TopicEvent,
    TopicState,
)

GONE = {ProducerState.CLOSED, ProducerState.BROKEN}


def test_closed_producers_stay_closed() -> None:
    assert set(PRODUCER_TRANSITIONS) == set(ProducerEvent)
    for after in PRODUCER_TRANSITIONS.values():
        assert all(new in GONE for old, new in after.items() if old in GONE)


@pytest.mark.parametrize("state", ProducerState)
def test_a_client_may_close_at_any_time(state: ProducerState) -> None:
    assert state in PRODUCER_TRANSITIONS[ProducerEvent.FINISH]


def test_only_a_closed_producer_can_be_broken() -> None:
    assert set(PRODUCER_TRANSITIONS[ProducerEvent.WRITE_FAILED]) == GONE


@pytest.mark.parametrize("event", TopicEvent)
@pytest.mark.parametrize("state", TopicState)
def test_a_topic_that_refuses_clients_never_takes_them_again(
    event: TopicEvent, state: TopicState
) -> None:
    given_up = (TopicState.FENCED, TopicState.CLOSED)
    after = TOPIC_TRANSITIONS[event][state]
    assert after in given_up or (state not in given_up and after is not TopicState.OPEN)
    assert after is TopicState.CLOSED or state is not TopicState.CLOSED
