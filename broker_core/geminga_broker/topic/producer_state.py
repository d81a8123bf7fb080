"""States of a producer, and what each event makes of them (pure; spec BR-20)."""

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


_WAITING, _OPEN, _CLOSING, _CLOSED, _BROKEN = ProducerState

ANSWERING = (_OPEN, _CLOSING)
"""In these states receipts are sent."""

TRANSITIONS: Mapping[ProducerEvent, Mapping[ProducerState, ProducerState]] = {
    ProducerEvent.QUEUED: {_OPEN: _WAITING},
    # It may have been closed while its epoch was stored.
    ProducerEvent.GRANTED: {_WAITING: _OPEN, _CLOSED: _CLOSED},
    ProducerEvent.FINISH: {
        _WAITING: _CLOSING,
        _OPEN: _CLOSING,
        _CLOSING: _CLOSING,
        _CLOSED: _CLOSED,
        _BROKEN: _BROKEN,
    },
    ProducerEvent.CLOSE: {_WAITING: _CLOSED, _OPEN: _CLOSED, _CLOSING: _CLOSED},
    ProducerEvent.WRITE_FAILED: {_CLOSED: _BROKEN, _BROKEN: _BROKEN},
}
"""The state after each event; an event that a state does not list is a defect."""
