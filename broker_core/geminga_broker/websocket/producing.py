"""A producer's WebSocket (Apache's `ProducerHandler`)."""

from __future__ import annotations

import trio

import geminga
from geminga_broker.websocket import messages
from geminga_broker.websocket.errors import UNKNOWN, BadMessage
from geminga_broker.websocket.text_socket import TextSocket

UNANSWERED_MAX = 10_000
"""Messages whose responses the client hasn't read; above it the client isn't read."""

_Pending = tuple["geminga.Receipt", str | None]


async def serve_producer(socket: TextSocket, producer: geminga.Producer) -> None:
    """Publish the client's messages and respond to each, in order. Raises Ended."""
    into, out = trio.open_memory_channel[_Pending](UNANSWERED_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer, socket, out)
        while True:
            text = await socket.receive()
            context: str | None = None
            try:
                publish = messages.read_publish(text)
                context = publish.context
                receipt = await _send(producer, publish)
            except BadMessage as error:
                await socket.send(messages.not_sent(error.code, str(error), error.context))
            except geminga.GemingaError as error:
                await socket.send(messages.not_sent(UNKNOWN, str(error), context))
            else:
                await into.send((receipt, context))


async def _send(producer: geminga.Producer, publish: messages.Publish) -> geminga.Receipt:
    """Waits for room. Raises GemingaError."""
    return await producer.submit(
        publish.data,
        properties=publish.properties,
        partition_key=publish.key,
        event_time_ms=publish.event_time_ms,
        deliver_at_ms=publish.deliver_at_ms,
        deliver_after=publish.deliver_after,
        replication_clusters=publish.replication_clusters,
        disable_replication=publish.disable_replication,
    )


async def _answer(socket: TextSocket, out: trio.MemoryReceiveChannel[_Pending]) -> None:
    async for receipt, context in out:
        try:
            text = messages.sent(await receipt.wait(), context)
        except geminga.GemingaError as error:
            text = messages.not_sent(UNKNOWN, str(error), context)
        await socket.send(text)
