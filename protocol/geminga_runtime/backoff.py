"""Waits between retries, as in Pulsar's clients
(org.apache.pulsar.common.util.Backoff).
"""

from __future__ import annotations

import random

INITIAL_S = 0.1
MAX_S = 60.0
MANDATORY_STOP_S = 0.0
JITTER_PARTS = 10
"""Up to a tenth is taken off at random, so that clients don't all come back at once."""


class Backoff:
    """Waits that double from `initial_s` to `max_s`.

    One wait is cut short, to end `mandatory_stop_s` after the first began: a client that gives up
    then still makes a last try. Pure: time and randomness are parameters.
    """

    __slots__ = (
        "_first_at_s",
        "_initial_s",
        "_mandatory_stop_s",
        "_max_s",
        "_next_s",
        "_rng",
        "_stop_made",
    )

    def __init__(
        self,
        initial_s: float = INITIAL_S,
        max_s: float = MAX_S,
        mandatory_stop_s: float = MANDATORY_STOP_S,
        rng: random.Random | None = None,
    ) -> None:
        if not 0 < initial_s <= max_s:
            raise ValueError("0 < initial_s <= max_s must hold")
        self._initial_s = initial_s
        self._max_s = max_s
        self._mandatory_stop_s = mandatory_stop_s
        self._rng = rng
        self._next_s = initial_s
        self._first_at_s: float | None = None
        self._stop_made = mandatory_stop_s <= 0

    def next_s(self, now_s: float) -> float:
        """The next wait in seconds; `now_s` is any monotonic clock's."""
        wait_s = self._next_s
        self._next_s = min(self._next_s * 2, self._max_s)
        if not self._stop_made:
            if self._first_at_s is None:
                self._first_at_s = now_s
            elapsed_s = now_s - self._first_at_s
            if elapsed_s + wait_s > self._mandatory_stop_s:
                wait_s = max(self._initial_s, self._mandatory_stop_s - elapsed_s)
                self._stop_made = True
        if self._rng is None:  # most never wait, and to make one is dear
            self._rng = random.Random()
        wait_s -= wait_s / JITTER_PARTS * self._rng.random()
        return max(self._initial_s, wait_s)

    def reset(self) -> None:
        """Start over, after a success."""
        self._next_s = self._initial_s
        self._first_at_s = None
        self._stop_made = self._mandatory_stop_s <= 0
