"""Clients of topics that move to another broker (spec CL-11, PIP-307).

They are told to leave only once the other broker can serve them, and where it is. What they send
meanwhile is not answered; they send it again there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from geminga_broker.cluster.addresses import Addresses

NOWHERE = Addresses("", "")
"""The clients look up anew."""

TOLD_A_TURN = 256
"""Clients that are told while other tasks wait; some milliseconds."""


class Moving:
    """The clients that wait to be told: one callback for each producer and consumer."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[Addresses], None]] = []
        self._where: Addresses | None = None

    def tell(self, callback: Callable[[Addresses], None]) -> None:
        """Call back with the new broker's addresses, once they are known."""
        if self._where is None:
            self._waiting.append(callback)
        else:
            callback(self._where)

    async def arrived(self, where: Addresses) -> None:
        """The topics are served there from now on; `NOWHERE` if that isn't known. All are told even
        if cancelled, others run meanwhile.
        """
        self._where = where
        waiting, self._waiting = self._waiting, []
        with trio.CancelScope(shield=True):
            for number, callback in enumerate(waiting):
                if number % TOLD_A_TURN == 0:
                    await trio.lowlevel.checkpoint()
                callback(where)


class Leaving(Protocol):
    """The part of `topic.api.ClientConnection` that notifies a client of what is closed."""

    def drop_producer(self, producer_id: int) -> None:
        """Notify it now."""

    def drop_consumer(self, consumer_id: int) -> None:
        """Notify it now."""

    def move_producer(self, producer_id: int, moving: Moving) -> None:
        """Notify it once the new broker is known."""

    def move_consumer(self, consumer_id: int, moving: Moving) -> None:
        """Notify it once the new broker is known."""


def drop_producer(connection: Leaving, producer_id: int, moving: Moving | None) -> None:
    """The broker closed a producer, `moving` if its topic goes to another broker."""
    if moving is None:
        connection.drop_producer(producer_id)
    else:
        connection.move_producer(producer_id, moving)


def drop_consumer(connection: Leaving, consumer_id: int, moving: Moving | None) -> None:
    """The broker closed a consumer, `moving` if its topic goes to another broker."""
    if moving is None:
        connection.drop_consumer(consumer_id)
    else:
        connection.move_consumer(consumer_id, moving)
