"""States of topics and producers, and their transitions (pure; BR-08, BR-09, BR-20)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class ProducerState(Enum):
    """State of a producer. Only OPEN takes messages."""

    WAITING = "waiting"
    """Waits for exclusive access."""
    OPEN = "open"
    CLOSING = "closing"
    """The client closes it; pending receipts are still sent."""
    CLOSED = "closed"
    BROKEN = "broken"
    """Closed after a failed write; the client resends pending entries."""


class ProducerEvent(Enum):
    """Events of a producer."""

    QUEUED = "it must wait for exclusive access"
    GRANTED = "it has the access"
    FINISH = "the client closes it"
    CLOSE = "it leaves the topic"
    WRITE_FAILED = "entries were not stored"


_WAITING, _READY, _CLOSING, _CLOSED, _BROKEN = ProducerState

PRODUCER_TRANSITIONS: Mapping[ProducerEvent, Mapping[ProducerState, ProducerState]] = {
    ProducerEvent.QUEUED: {_READY: _WAITING},
    # It may be closed while its epoch is being stored.
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
"""The state after each event; an event that isn't listed for a state is a defect."""


class TopicState(Enum):
    """State of a topic. Only OPEN takes messages; OPEN and TERMINATED take clients."""

    OPEN = "open"
    TERMINATED = "terminated"
    """Takes no more messages, permanently."""
    FENCED = "fenced"
    """Refuses all clients, before it is unloaded or deleted."""
    CLOSED = "closed"
    """Its log is (being) closed or deleted."""


class TopicEvent(Enum):
    """Events of a topic."""

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
"""The state after each event. The log of a fenced topic may also be terminated."""
