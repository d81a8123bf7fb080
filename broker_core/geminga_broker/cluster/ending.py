"""How long topics may take to be closed or deleted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import trio

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
