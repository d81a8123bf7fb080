"""Clients with random actions, and records of all that they see.

A `Peer` is one connection. What must hold for it alone is checked as frames come in; what must hold
over all of them is in `Books`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import trio

from geminga_broker._tests.wire import WireClient
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.batch import BatchBuilder, split_batch
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.encode import send as send_prefix
from geminga_protocol.frames import SUBMESSAGE, Frame
from geminga_protocol.ids import Position
from geminga_protocol.message_id import MessageId
from geminga_protocol.payload import build, split
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    MessageMetadata,
    ProducerAccessMode,
    ServerError,
    SingleMessageMetadata,
)

Type = BaseCommand.Type
SubType = CommandSubscribe.SubType
FROM_BROKER = (1 << 64) - 1
BATCH_MAX = 5
KEYS = [f"k{number}" for number in range(8)]
PATIENCE_S = 200.0
ORDERED = (SubType.Exclusive, SubType.Failover)


@dataclass
class Books:
    """Sent, stored and acknowledged messages; a part of a message is (position, batch index)."""

    rng: Random
    sent: dict[bytes, str] = field(default_factory=dict)
    stored: dict[str, dict[Position, int]] = field(default_factory=dict)
    acked: dict[tuple[str, str], set[tuple[Position, int]]] = field(default_factory=dict)
    firm: dict[tuple[str, str], set[tuple[Position, int]]] = field(default_factory=dict)
    skipped_upto: dict[tuple[str, str], Position] = field(default_factory=dict)
    clock_ms: int = 1000
    failing: float = 0.0
    """Share of writes that fail."""
    numbers: int = 0

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def store(self, topic: str, position: Position, messages: int) -> None:
        known = self.stored.setdefault(topic, {})
        assert position not in known, f"two receipts for {position}"
        known[position] = messages

    def seeked(self, topic: str, name: str, mark_delete: Position) -> None:
        key = (topic, name)
        self.firm[key] = set()
        self.skipped_upto[key] = max(mark_delete, self.skipped_upto.get(key, mark_delete))


class OpenProducer:
    """A producer, as its client sees it."""

    def __init__(self, topic: str, producer_id: int) -> None:
        self.topic = topic
        self.producer_id = producer_id
        self.sequence_id = 0
        self.pending: deque[tuple[int, int]] = deque()
        self.refused: set[int] = set()
        self.ready = True
        self.last = Position(-1, -1)


class OpenConsumer:
    """A consumer, as its client sees it. `held` has the bits that are not acknowledged."""

    def __init__(self, topic: str, name: str, kind: int, consumer_id: int) -> None:
        self.topic = topic
        self.name = name
        self.kind = kind
        self.consumer_id = consumer_id
        self.given = 0
        self.received = 0
        self.steps_back = 0
        self.last = Position(-1, -1)
        self.held: dict[Position, tuple[int, int]] = {}
        self.on_part: Callable[[Position, int], None] = lambda position, index: None


class Peer:
    """One connection and all that it holds."""

    def __init__(self, books: Books, wire: WireClient) -> None:
        self.books = books
        self.wire = wire
        self.producers: dict[int, OpenProducer] = {}
        self.consumers: dict[int, OpenConsumer] = {}
        self.waiting: dict[int, trio.Event] = {}
        self.answers: dict[int, Frame | None] = {}
        self.lost = False
        self.ends_told: set[int] = set()
        self._sending = trio.Lock()
        self._gate = trio.Event()
        self._gate.set()

    # ---- the connection ----

    async def run(self) -> None:
        """Read until the end; every answer belongs to one question."""
        try:
            while (frame := await self.wire.next()) is not None:
                await self._gate.wait()
                if frame.type == Type.PONG:
                    continue  # unasked, to one that was not read for a while
                if frame.type == Type.PING:
                    await self.send(connection.PONG)
                else:
                    self._take(frame)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # closed by the test itself
        self.leave()

    def leave(self) -> None:
        self.lost = True
        for request_id, event in self.waiting.items():
            self.answers[request_id] = None
            event.set()
        self.waiting.clear()
        self.producers.clear()
        self.consumers.clear()

    async def send(self, *frames: bytes) -> None:
        async with self._sending:
            if not self.lost:
                try:
                    await self.wire.send(*frames)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.leave()

    async def pause(self, seconds: float) -> None:
        self._gate = trio.Event()
        await trio.sleep(seconds)
        self._gate.set()

    async def ask(self, request_id: int, request: bytes) -> Frame | None:
        """The one answer; None if the connection went."""
        event = self.waiting[request_id] = trio.Event()
        await self.send(request)
        if self.lost and not event.is_set():
            return None
        with trio.fail_after(PATIENCE_S):
            await event.wait()
        return self.answers.pop(request_id)

    def _take(self, frame: Frame) -> None:
        command = frame.command
        body = getattr(command, SUBMESSAGE[frame.type])
        if frame.type == Type.MESSAGE:
            self._message(body, frame)
        elif frame.type == Type.SEND_RECEIPT:
            self._receipt(body)
        elif frame.type == Type.SEND_ERROR:
            self._send_error(body)
        elif frame.type == Type.CLOSE_PRODUCER:
            del self.producers[body.producer_id]
        elif frame.type == Type.CLOSE_CONSUMER:
            del self.consumers[body.consumer_id]
        elif frame.type == Type.REACHED_END_OF_TOPIC:
            self.ends_told.add(body.consumer_id)
        elif frame.type == Type.ACTIVE_CONSUMER_CHANGE:
            consumer = self.consumers[body.consumer_id]
            assert consumer.kind == SubType.Failover
            consumer.steps_back += body.is_active  # it continues at the mark-delete
        elif frame.type == Type.PRODUCER_SUCCESS and body.request_id not in self.waiting:
            producer = self.producers[body.request_id]
            assert body.producer_ready
            assert not producer.ready, "told twice that it is ready"
            producer.ready = True
        elif frame.type == Type.ERROR and body.request_id not in self.waiting:
            assert body.error == ServerError.ProducerFenced
            waited = self.producers.pop(body.request_id)
            assert not waited.ready, "it has the topic"
        else:
            if frame.type == Type.PRODUCER_SUCCESS and body.request_id in self.producers:
                self.producers[body.request_id].ready = body.producer_ready
            assert body.request_id in self.waiting, f"a second or odd answer: {command}"
            self.answers[body.request_id] = frame
            self.waiting.pop(body.request_id).set()

    # ---- producers ----

    async def open_producer(
        self, topic: str, mode: ProducerAccessMode = ProducerAccessMode.Shared
    ) -> None:
        number = self.books.number()
        self.producers[number] = OpenProducer(topic, number)
        answer = await self.ask(number, producing.producer(topic, number, number, access_mode=mode))
        if answer is None or answer.type == Type.ERROR:
            self.producers.pop(number, None)

    def encode(self, producer: OpenProducer) -> tuple[bytes, int]:
        """A SEND with one message or a batch, noted as pending."""
        books, rng = self.books, self.books.rng
        sequence_id = producer.sequence_id
        producer.sequence_id += 1
        count = rng.choice((0, 0, 0, 1, 3, BATCH_MAX))
        key = rng.choice(KEYS)
        books.clock_ms += 1
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=sequence_id,
            publish_time=books.clock_ms,
            partition_key=key,
        )
        contents = [
            f"{producer.producer_id}-{sequence_id}-{index}".encode()
            for index in range(max(count, 1))
        ]
        padding = b"." * rng.choice((0, 10, 100, 4000))
        for content in contents:
            books.sent[content] = key
        if count:
            batch = BatchBuilder()
            metadata.num_messages_in_batch = count
            for content in contents:
                batch.add(SingleMessageMetadata(), content + padding)
            payload = build(metadata, batch.build())
        else:
            payload = build(metadata, contents[0] + padding)
        if rng.random() < 0.02:
            payload = payload[:-1] + bytes([payload[-1] ^ 1])
            producer.refused.add(sequence_id)
        else:
            producer.pending.append((sequence_id, len(contents)))
        prefix = send_prefix(producer.producer_id, sequence_id, len(contents), len(payload))
        return prefix + payload, len(contents)

    async def close_producer(self, producer: OpenProducer, frames: bytes = b"") -> None:
        """Close, with some SENDs right before it: all are answered first."""
        number = self.books.number()
        answer = await self.ask(
            number, frames + producing.close_producer(producer.producer_id, number)
        )
        if answer is None:
            return
        if self.producers.pop(producer.producer_id, None) is not None:
            assert not producer.pending, "closed before all was answered"

    def _receipt(self, body: object) -> None:
        producer = self.producers[body.producer_id]
        sequence_id, messages = producer.pending.popleft()
        assert body.sequence_id == sequence_id, "receipts out of order"
        data = body.message_id
        position = Position(data.ledgerId, data.entryId)
        if producer.topic.startswith("persistent"):
            assert position > producer.last, "receipts go back"
            producer.last = position
            self.books.store(producer.topic, position, messages)

    def _send_error(self, body: object) -> None:
        producer = self.producers[body.producer_id]
        sequence_id = body.sequence_id
        if sequence_id in producer.refused:
            producer.refused.remove(sequence_id)
        else:
            assert producer.pending.popleft()[0] == sequence_id, "errors out of order"

    # ---- consumers ----

    async def subscribe(
        self, topic: str, name: str, kind: int, **more: object
    ) -> OpenConsumer | None:
        number = self.books.number()
        self.consumers[number] = OpenConsumer(topic, name, kind, number)
        options = consuming.SubscribeOptions(
            consumer_name=f"c{number}",
            **more,
        )
        request = consuming.subscribe(topic, name, SubType.ValueType(kind), number, number, options)
        answer = await self.ask(number, request)
        if answer is None or answer.type == Type.ERROR:
            self.consumers.pop(number, None)
            return None
        return self.consumers.get(number)

    async def flow(self, consumer: OpenConsumer, permits: int) -> None:
        consumer.given += permits
        await self.send(consuming.flow(consumer.consumer_id, permits))

    def _message(self, body: object, frame: Frame) -> None:
        consumer = self.consumers.get(body.consumer_id)
        assert consumer is not None, "a message for a consumer that is closed"
        data = body.message_id
        position = Position(data.ledgerId, data.entryId)
        assert frame.payload is not None
        parts = split(frame.payload)
        metadata = MessageMetadata.FromString(bytes(parts.metadata))
        if metadata.HasField("num_messages_in_batch"):
            contents = [bytes(part) for _, part in split_batch(metadata, parts.payload)]
        else:
            contents = [bytes(parts.payload)]
        for content in contents:
            known = self.books.sent.get(content.rstrip(b"."))
            assert known == metadata.partition_key, f"{content[:20]!r} was never sent"
        bits = ack_sets.to_bits(body.ack_set) or (1 << len(contents)) - 1
        assert consumer.received < consumer.given, "more than was asked for"
        consumer.received += bits.bit_count()
        if consumer.kind in ORDERED and position <= consumer.last and "non-" not in consumer.topic:
            assert consumer.steps_back > 0, "out of order"
            consumer.steps_back -= 1
        consumer.last = position
        consumer.held[position] = (bits, len(contents))
        for index in range(len(contents)):
            if bits >> index & 1:
                consumer.on_part(position, index)

    async def ack(
        self, consumer: OpenConsumer, parts: Iterable[tuple[Position, int]], *, cumulative: bool
    ) -> None:
        """Acknowledge positions, but for the bits that are to be kept; with a receipt or not."""
        books = self.books
        key = (consumer.topic, consumer.name)
        ids: list[MessageId] = []
        done: set[tuple[Position, int]] = set()
        for position, keep in parts:
            bits, size = consumer.held.get(position, (1, 1))
            # An ack set may have fewer acknowledgements than are known; both add up.
            keep &= (1 << size) - 1
            ids.append(MessageId(*position, ack_set=ack_sets.from_bits(keep)))
            keep &= bits
            done |= {(position, index) for index in range(size) if not keep >> index & 1}
            if position in consumer.held:
                if keep:
                    consumer.held[position] = (keep, size)
                else:
                    del consumer.held[position]
            if cumulative:
                gone = [earlier for earlier in consumer.held if earlier < position]
                for earlier in gone:
                    done |= {(earlier, index) for index in range(consumer.held.pop(earlier)[1])}
        if not (cumulative and consumer.kind not in ORDERED):
            books.acked.setdefault(key, set()).update(done)
        seeks = books.firm.setdefault(key, set())
        number = books.number() if books.rng.random() < 0.5 else None
        frame = consuming.ack(consumer.consumer_id, ids, cumulative=cumulative, request_id=number)
        if number is None:
            await self.send(frame)
            return
        answer = await self.ask(number, frame)
        taken = answer is not None and not answer.command.ackResponse.HasField("error")
        counts = consumer.kind in ORDERED or not cumulative
        if taken and counts and books.firm[key] is seeks:
            seeks |= done

    async def redeliver(self, consumer: OpenConsumer, positions: Iterable[Position]) -> None:
        consumer.steps_back += 1
        ids = [MessageId(*position) for position in positions]
        await self.send(consuming.redeliver_unacknowledged(consumer.consumer_id, ids))

    async def request(self, make: Callable[[int], bytes]) -> Frame | None:
        number = self.books.number()
        return await self.ask(number, make(number))

    async def close_consumer(self, consumer: OpenConsumer) -> None:
        number = consumer.consumer_id
        answer = await self.request(lambda request: consuming.close_consumer(number, request))
        if answer is not None:
            self.consumers.pop(number, None)
