"""States of topics and producers, and what each event makes of them (pure; BR-08, BR-09, BR-20)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class ProducerState(Enum):
    """Where a producer stands. Only OPEN takes messages."""

    WAITING = "waiting"
    """For exclusive access."""
    OPEN = "open"
    CLOSING = "closing"
    """The client closes it: what is pending is still answered."""
    CLOSED = "closed"
    BROKEN = "broken"
    """Closed because a write failed: the client sends again what is still being written."""


class ProducerEvent(Enum):
    """What happens to a producer."""

    QUEUED = "it must wait for exclusive access"
    GRANTED = "it has the access"
    FINISH = "the client closes it"
    CLOSE = "it leaves the topic"
    WRITE_FAILED = "entries were not stored"


_WAITING, _READY, _CLOSING, _CLOSED, _BROKEN = ProducerState

PRODUCER_TRANSITIONS: Mapping[ProducerEvent, Mapping[ProducerState, ProducerState]] = {
    ProducerEvent.QUEUED: {_READY: _WAITING},
    # It may have been closed while its epoch was stored.
    ProducerEvent.GRANTED: {_WAITING: _READY, _CLOSED: _CLOSED},
    ProducerEvent.FINISH: {
        _WAITING: _CLOSING,
        _READY: _CLOSING,
        _CLOSING: _CLOSING,
        _CLOSED: _CLOSED,
        _BROKEN: _BROKEN,
    },
    ProducerEvent.CLOSE: {_WAITING: _CLOSED, _READY: _CLOSED, _CLOSING: _CLOSED},
    ProducerEvent.WRITE_FAILED: {_CLOSED: _BROKEN, _BROKEN: _BROKEN},
}
"""The state after each event; an event that a state does not list is a defect."""


class TopicState(Enum):
    """Where a topic stands. Only OPEN takes messages; OPEN and TERMINATED take clients."""

    OPEN = "open"
    TERMINATED = "terminated"
    """Takes no more messages, for good."""
    FENCED = "fenced"
    """Is being given up: refuses all clients."""
    CLOSED = "closed"
    """Its log is being closed or deleted, or was."""


class TopicEvent(Enum):
    """What happens to a topic."""

    TERMINATE = "an operator ends it"
    FENCE = "it is unloaded, or another broker has its log"
    CLOSE = "its log is closed or deleted"


_OPEN, _TERMINATED, _FENCED, _GONE = TopicState

TOPIC_TRANSITIONS: Mapping[TopicEvent, Mapping[TopicState, TopicState]] = {
    TopicEvent.TERMINATE: {
        _OPEN: _TERMINATED,
        _TERMINATED: _TERMINATED,
        _FENCED: _FENCED,
        _GONE: _GONE,
    },
    TopicEvent.FENCE: {
        _OPEN: _FENCED,
        _TERMINATED: _FENCED,
        _FENCED: _FENCED,
        _GONE: _GONE,
    },
    TopicEvent.CLOSE: dict.fromkeys(TopicState, _GONE),
}
"""The state after each event. A terminated log may also belong to a topic that is given up."""
