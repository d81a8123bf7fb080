"""Consumers' and readers' WebSockets (Apache's `ConsumerHandler` and `ReaderHandler`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

import geminga
from geminga_broker.websocket import messages
from geminga_broker.websocket.errors import BadCommand
from geminga_broker.websocket.parameters import read_message_id
from geminga_broker.websocket.text_socket import TextSocket
from geminga_protocol.message_id import MessageId

PERMITS_MAX = 1 << 31


class Budget:
    """The number of messages that may be sent before the client's next command."""

    def __init__(self, first: int) -> None:
        self._left = first
        self._more = trio.Event()

    async def take(self) -> None:
        """Wait until a message may be sent, and count it."""
        while self._left <= 0:
            self._more = trio.Event()
            await self._more.wait()
        self._left -= 1

    def give(self, count: int) -> None:
        """The client has handled `count` messages, or wants `count` more."""
        self._left = min(self._left + count, PERMITS_MAX)
        self._more.set()


async def serve_consumer(
    socket: TextSocket, consumer: geminga.Consumer, *, pending_max: int, pull_mode: bool
) -> None:
    """Send messages as the budget allows; run commands. Raises Ended, BadCommand, GemingaError."""
    budget = Budget(pending_max)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_deliver, socket, consumer.receive, budget)
        while True:
            command = messages.read_command(await socket.receive())
            if command.type == "permit":
                if pull_mode:
                    budget.give(command.permits or 0)
            elif command.type == "unsubscribe":
                await consumer.unsubscribe()
            elif command.type == "isEndOfTopic":
                await socket.send(messages.end_of_topic(consumer.reached_end_of_topic))
            else:
                message_id = read_message_id(command.message_id, BadCommand)
                await _settle(consumer, command.type, message_id)
                if not pull_mode:
                    budget.give(1)


async def _settle(consumer: geminga.Consumer, kind: str, message_id: MessageId) -> None:
    """Raises BadCommand for an id of a foreign partition."""
    try:
        if kind == "negativeAcknowledge":
            consumer.negative_acknowledge(message_id)
        else:
            await consumer.acknowledge(message_id)
    except geminga.InvalidArgumentError as error:
        raise BadCommand(str(error)) from None
    except geminga.AlreadyClosedError:
        pass  # unsubscribed


async def serve_reader(socket: TextSocket, reader: geminga.Reader, *, pending_max: int) -> None:
    """Send messages; each command of the client, except `isEndOfTopic`, allows one more. Raises
    Ended, BadCommand, GemingaError.
    """
    budget = Budget(pending_max)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_deliver, socket, reader.read_next, budget)
        while True:
            command = messages.read_command(await socket.receive())
            if command.type == "isEndOfTopic":
                await socket.send(messages.end_of_topic(reader.reached_end_of_topic))
            else:
                budget.give(1)


async def _deliver(
    socket: TextSocket, receive: Callable[[], Awaitable[geminga.Message]], budget: Budget
) -> None:
    while True:
        await budget.take()
        try:
            message = await receive()
        except geminga.AlreadyClosedError:
            return  # unsubscribed; the client may still send commands
        await socket.send(messages.delivered(message))
