"""A client's connection for topic tests, which parses written frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from geminga_broker.subscription.consumer import SubscribeRequest
from geminga_broker.topic.api import ProducerRequest, PublishItem
from geminga_broker.topic.producer import Producer
from geminga_protocol.frames import FrameReader
from geminga_protocol.ids import Position
from geminga_protocol.payload import build, parse_metadata
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageMetadata


class FakeConnection:
    """Keeps written frames, parsed."""

    def __init__(self, name: str = "client:1") -> None:
        self.address = name
        self.client_version = "fake"
        self.protocol_version = 21
        self.supports_broker_entry_metadata = False
        self.principal = None
        self.writable = True
        self.alive = True
        self.writes = 0
        self.dropped_producers: list[int] = []
        self.dropped_consumers: list[int] = []
        self._waiting: list[Callable[[], None]] = []
        self._reader = FrameReader()
        self._frames: list[tuple[BaseCommand, bytes]] = []

    def write(self, *buffers: bytes | memoryview) -> None:
        self.writes += 1
        for frame in self._reader.feed(b"".join(buffers)):
            payload = b"" if frame.payload is None else bytes(frame.payload)
            self._frames.append((frame.command, payload))

    def write_now(self, *buffers: bytes | memoryview) -> None:
        self.write(*buffers)

    def on_writable(self, callback: Callable[[], None]) -> None:
        if self.writable:
            callback()
        else:
            self._waiting.append(callback)

    def set_writable(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    async def is_alive(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.alive

    def drop_producer(self, producer_id: int) -> None:
        self.dropped_producers.append(producer_id)

    def drop_consumer(self, consumer_id: int) -> None:
        self.dropped_consumers.append(consumer_id)

    def commands(self, kind: int) -> list[BaseCommand]:
        return [command for command, _ in self._frames if command.type == kind]

    @property
    def receipts(self) -> list[tuple[int, int]]:
        """(sequence id, entry id) of SEND_RECEIPTs."""
        return [
            (c.send_receipt.sequence_id, c.send_receipt.message_id.entryId)
            for c in self.commands(BaseCommand.Type.SEND_RECEIPT)
        ]

    @property
    def errors(self) -> list[tuple[int, int]]:
        """(sequence id, code) of SEND_ERRORs."""
        found = self.commands(BaseCommand.Type.SEND_ERROR)
        return [(c.send_error.sequence_id, c.send_error.error) for c in found]

    def messages(self, consumer_id: int | None = None) -> list[BaseCommand]:
        found = self.commands(BaseCommand.Type.MESSAGE)
        return [c for c in found if consumer_id in (None, c.message.consumer_id)]

    def entries(self, consumer_id: int | None = None) -> list[int]:
        """Entry ids of MESSAGEs, in order."""
        return [c.message.message_id.entryId for c in self.messages(consumer_id)]

    def payloads(self) -> list[bytes]:
        return [payload for command, payload in self._frames if command.HasField("message")]

    def forget(self) -> None:
        self._frames.clear()


def payload(
    sequence_id: int = 0,
    *,
    key: str | None = None,
    batch: int | None = None,
    publish_time: int = 1,
    deliver_at: int | None = None,
    marker: int | None = None,
    body: bytes = b"x",
) -> memoryview:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=publish_time
    )
    if key is not None:
        metadata.partition_key = key
    if batch is not None:
        metadata.num_messages_in_batch = batch
    if deliver_at is not None:
        metadata.deliver_at_time = deliver_at
    if marker is not None:
        metadata.marker_type = marker
    return memoryview(build(metadata, body))


def item(sequence_id: int = 0, *, batch: int | None = None, key: str | None = None,
         deliver_at: int | None = None, marker: int | None = None,
         publish_time: int = 1) -> PublishItem:  # fmt: skip
    data = payload(sequence_id, key=key, batch=batch, deliver_at=deliver_at, marker=marker,
                   publish_time=publish_time)  # fmt: skip
    return PublishItem(sequence_id, data, batch or 1)


def key_of(data: bytes) -> str:
    return parse_metadata(memoryview(data)).partition_key


def producer_request(
    connection: FakeConnection, name: str = "p", **more: object
) -> ProducerRequest[Producer]:
    return ProducerRequest(connection, 1, name, **more)


def subscribe_request(
    connection: FakeConnection, consumer_id: int, subscription: str = "sub", **more: object
) -> SubscribeRequest:
    more.setdefault("consumer_name", f"c{consumer_id}")
    return SubscribeRequest(connection, consumer_id, subscription, **more)


def position(entry: int, ledger: int = 7) -> Position:
    return Position(ledger, entry)


NO_PROPERTIES: Mapping[str, str] = {}
