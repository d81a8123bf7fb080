"""Calls of message listeners: in at most `message_listener_threads` threads at a time, as the
official client makes them, each consumer's in order.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("geminga")

POLL_S = 0.05
"""A call that waits for its turn looks so often whether its consumer was closed."""


class Turns:
    """The client's threads for listeners: each consumer has one of them."""

    def __init__(self, threads: int) -> None:
        self._locks = [threading.RLock() for _ in range(max(1, threads))]
        self._numbers = itertools.count()

    def lane(self) -> Lane:
        """The lane of one more consumer."""
        return Lane(self._locks[next(self._numbers) % len(self._locks)])


class Lane:
    """One consumer's calls."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._may_go = threading.Event()
        self._may_go.set()
        self._is_over = False

    def pause(self) -> None:
        """No call begins until `resume`."""
        self._may_go.clear()

    def resume(self) -> None:
        """Calls begin again."""
        self._may_go.set()

    def end(self) -> None:
        """The consumer is being closed: no call begins any more."""
        self._is_over = True
        self._may_go.set()

    def begin_again(self) -> None:
        """It is not closed after all."""
        self._is_over = False

    def run(self, listener: Callable[[], object]) -> None:
        """Call the listener when it is its turn; its error is logged. A message whose consumer is
        closed meanwhile is left unacknowledged.
        """
        while not self._is_over:
            self._may_go.wait()
            if not self._lock.acquire(timeout=POLL_S):
                continue
            try:
                if self._is_over or not self._may_go.is_set():
                    continue
                listener()
            except (Exception, SystemExit):  # the thread is not the listener's to end
                logger.exception("the message listener failed")
            finally:
                self._lock.release()
            return
