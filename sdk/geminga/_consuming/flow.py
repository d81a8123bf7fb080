"""Sends one consumer's permits to the broker (spec SDK-21)."""

from __future__ import annotations

from geminga._connection.connection import Connection
from geminga._consuming.inbox import Permits
from geminga_protocol.commands import consuming as commands


class Flow:
    """Sends FLOW when enough permits are free, unless it is paused."""

    def __init__(self, consumer_id: int, permits: Permits) -> None:
        self.permits = permits
        self._consumer_id = consumer_id
        self._paused_permits: int | None = None
        self._connection: Connection | None = None

    def attached(self, connection: Connection) -> None:
        """A new connection: grant permits for the whole queue."""
        self._connection = connection
        if self._paused_permits is not None:
            self._paused_permits = 0
        self._give(self.permits.start())

    def detached(self) -> None:
        """The connection is lost."""
        self._connection = None

    def release(self, messages: int) -> None:
        """Free the permits of messages that left the queue."""
        given = self.permits.released(messages)
        if given:
            self._give(given)

    def demand(self) -> None:
        """A caller waits for a message: without a queue, request one."""
        if self._connection is not None:
            self._give(self.permits.demand())

    def top_up(self) -> None:
        """A caller waits for many messages: grant all free permits."""
        self.demand()
        if self._connection is not None:
            self._give(self.permits.all_released())

    def _give(self, permits: int) -> None:
        if not permits:
            return
        if self._paused_permits is not None:
            self._paused_permits += permits
        elif self._connection is not None:
            self._connection.write_now(commands.flow(self._consumer_id, permits))

    def pause(self) -> None:
        """Grant no more permits; requested messages may still arrive."""
        if self._paused_permits is None:
            self._paused_permits = 0

    def resume(self) -> None:
        """Grant permits again."""
        held, self._paused_permits = self._paused_permits, None
        self._give(held or 0)
