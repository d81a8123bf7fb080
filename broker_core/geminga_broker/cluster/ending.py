"""How topics are closed, and how long that may take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from geminga_broker.log.api import LogFenced
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.topic import Topic

LEAVE_S = 30.0
"""Timeout of closing or deleting a topic."""


class Endings:
    """Blocks in which a topic is closed or deleted: no cancellation ends them, only their time."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._by = math.inf

    @contextmanager
    def shielded(self) -> Iterator[trio.CancelScope]:
        """Such a block, for LEAVE_S at most."""
        with trio.move_on_after(LEAVE_S, shield=True) as scope:
            scope.deadline = min(scope.deadline, self._by)
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def end_by(self, deadline: float) -> None:
        """The broker stops: none takes longer than until then. The earliest deadline counts."""
        self._by = min(self._by, deadline)
        for scope in self._scopes:
            scope.deadline = min(scope.deadline, self._by)


async def log_fenced(topic: Topic, why: str) -> None:
    """Tell a topic that another broker has its log."""
    topic.publish_failed(LogFenced(why))


async def close_topic(topic: Topic, *, moving: Moving | None = None) -> None:
    """Unload the topic; its clients are closed and reconnect, with `moving` where they are told."""
    topic.moving = moving
    await topic.close()
