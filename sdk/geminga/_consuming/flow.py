"""One consumer's permits on their way to the broker (spec SDK-21)."""

from __future__ import annotations

from geminga._connection.connection import Connection
from geminga._consuming.inbox import Permits
from geminga_protocol.commands import consuming as commands


class Flow:
    """Sends FLOW when enough permits came back, unless it is paused."""

    def __init__(self, consumer_id: int, permits: Permits) -> None:
        self.permits = permits
        self._consumer_id = consumer_id
        self._paused_permits: int | None = None
        self._connection: Connection | None = None

    def attached(self, connection: Connection) -> None:
        """A fresh attachment: permits for the whole queue."""
        self._connection = connection
        if self._paused_permits is not None:
            self._paused_permits = 0
        self._give(self.permits.start())

    def detached(self) -> None:
        """Nothing can be asked for."""
        self._connection = None

    def release(self, messages: int) -> None:
        """That many left the queue."""
        given = self.permits.released(messages)
        if given:
            self._give(given)

    def demand(self) -> None:
        """Somebody waits for a message: ask for one if there is no queue."""
        if self._connection is not None:
            self._give(self.permits.demand())

    def top_up(self) -> None:
        """Somebody waits for many messages: ask for all that the queue has room for."""
        self.demand()
        if self._connection is not None:
            self._give(self.permits.all_released())

    def _give(self, permits: int) -> None:
        if not permits:
            return
        if self._paused_permits is not None:
            self._paused_permits += permits
        elif self._connection is not None:
            self._connection.write(commands.flow(self._consumer_id, permits))

    def pause(self) -> None:
        """Give no more permits; what was given may still arrive."""
        if self._paused_permits is None:
            self._paused_permits = 0

    def resume(self) -> None:
        """Give permits again."""
        held, self._paused_permits = self._paused_permits, None
        self._give(held or 0)
