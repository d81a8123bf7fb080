"""SEEK and UNSUBSCRIBE of a consumer, during which it is attached to no broker."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from geminga._connection.connection_handler import ConnectionHandler
from geminga._consuming.start import Start
from geminga.errors import GemingaError
from geminga_protocol.commands import consuming as commands
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

Request = Callable[[Callable[[int], bytes]], Awaitable[BaseCommand]]


class Moves:
    """Sends one request at a time. The broker may close the consumer before it responds: attaching
    waits for the response (`over`).
    """

    def __init__(self, consumer_id: int, request: Request, handler: ConnectionHandler) -> None:
        self._id = consumer_id
        self._request = request
        self._handler = handler
        self._asked: trio.Event | None = None
        self._is_unsubscribed = False

    async def over(self) -> None:
        """Wait until no request is without its response."""
        while self._asked is not None:
            await self._asked.wait()

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None, None]:
        await self.over()
        answered = self._asked = trio.Event()
        try:
            yield
        finally:
            self._asked = None
            answered.set()

    async def seek(self, start: Start, to: MessageId | int) -> None:
        """Request the seek. Raises GemingaError.

        If attached before the response, messages from the new position would be dropped as old
        ones.
        """
        async with self._alone():
            if isinstance(to, MessageId):
                place = start.seek_id(to)
                await self._request(lambda n: commands.seek(self._id, n, message_id=place))
            else:
                await self._request(lambda n: commands.seek(self._id, n, publish_time_ms=to))

    async def unsubscribe(self, force: bool) -> None:
        """Delete the subscription. Raises GemingaError: then the consumer continues.

        After a success it is never attached again: SUBSCRIBE would create the subscription again.
        Neither after a cancellation, with an unknown outcome: then the consumer must be closed. A
        repeated call does nothing, as the broker has no such consumer any more.
        """
        async with self._alone():
            if self._is_unsubscribed:
                return
            try:
                await self._request(lambda n: commands.unsubscribe(self._id, n, force=force))
            except GemingaError:
                raise
            except BaseException:
                self._handler.abandon()
                raise
            self._is_unsubscribed = True
            await self._handler.stop()
