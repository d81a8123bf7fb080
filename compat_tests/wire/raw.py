"""A small blocking client on a plain socket, for what no well-behaved client does.

It reads and writes single frames, so that a test decides what goes out, when receipts are read, and
whether the connection is read at all.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from geminga_protocol import encode, payload
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageMetadata,
)

PROTOCOL_VERSION = 21
ERROR_TYPES = (BaseCommand.ERROR, BaseCommand.SEND_ERROR)


class ConnectionEnded(Exception):
    """The server closed or reset the connection."""


class RawClient:
    """One connection; a context manager. All waits end after ``timeout_s`` with TimeoutError."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        handshake: bool = True,
        timeout_s: float = 60.0,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_s = timeout_s
        self.frames: deque[Frame] = deque()
        self._reader = FrameReader()
        self._request_id = 0
        if handshake:
            self.connect()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # -- frames ------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Write bytes as they are. Raises ConnectionEnded."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEnded(str(error)) from error

    def send(self, command: BaseCommand) -> None:
        """Write one simple frame."""
        self.send_bytes(encode.frame(command))

    def receive_some(self) -> None:
        """Read once from the socket; whole frames are added to ``frames``. Answers PINGs."""
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError as error:
            raise ConnectionEnded(str(error)) from error
        if not data:
            raise ConnectionEnded("end of stream")
        for frame in self._reader.feed(data):
            if frame.type == BaseCommand.PING:
                pong = BaseCommand(type=BaseCommand.PONG)
                pong.pong.SetInParent()
                self.send(pong)
            else:
                self.frames.append(frame)

    def next_frame(self) -> Frame:
        """The next frame, whatever it is."""
        while not self.frames:
            self.receive_some()
        return self.frames.popleft()

    def wait_for(self, *types: int, accept: Callable[[BaseCommand], bool] | None = None) -> Frame:
        """The first frame of one of these types; others stay in ``frames`` in their order."""
        deadline = time.monotonic() + self.timeout_s
        seen = 0
        while time.monotonic() < deadline:
            for position in range(seen, len(self.frames)):
                frame = self.frames[position]
                if frame.type in types and (accept is None or accept(frame.command)):
                    del self.frames[position]
                    return frame
            seen = len(self.frames)
            self.receive_some()
        raise TimeoutError(f"no frame of types {types}")

    # -- commands ----------------------------------------------------------------------------

    def connect(self) -> Frame:
        """The handshake."""
        command = BaseCommand(type=BaseCommand.CONNECT)
        command.connect.client_version = "raw"
        command.connect.protocol_version = PROTOCOL_VERSION
        self.send(command)
        return self.wait_for(BaseCommand.CONNECTED, BaseCommand.ERROR)

    def request_id(self) -> int:
        """A fresh request id."""
        self._request_id += 1
        return self._request_id

    def producer(self, topic: str, producer_id: int = 1) -> str:
        """Register a producer; its name."""
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic = topic
        command.producer.producer_id = producer_id
        command.producer.request_id = self.request_id()
        self.send(command)
        frame = self.wait_for(BaseCommand.PRODUCER_SUCCESS, *ERROR_TYPES)
        if frame.type != BaseCommand.PRODUCER_SUCCESS:
            raise RuntimeError(f"no producer: {frame.command}")
        return str(frame.command.producer_success.producer_name)

    def subscribe(
        self,
        topic: str,
        name: str,
        *,
        consumer_id: int = 1,
        kind: CommandSubscribe.SubType.ValueType = CommandSubscribe.Exclusive,
        durable: bool = True,
    ) -> None:
        """Subscribe from the earliest message."""
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic = topic
        subscribe.subscription = name
        subscribe.subType = kind
        subscribe.consumer_id = consumer_id
        subscribe.request_id = self.request_id()
        subscribe.durable = durable
        subscribe.initialPosition = CommandSubscribe.Earliest
        self.send(command)
        frame = self.wait_for(BaseCommand.SUCCESS, *ERROR_TYPES)
        if frame.type != BaseCommand.SUCCESS:
            raise RuntimeError(f"no consumer: {frame.command}")

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        """Give permits for messages."""
        command = BaseCommand(type=BaseCommand.FLOW)
        command.flow.consumer_id = consumer_id
        command.flow.messagePermits = permits
        self.send(command)

    def ack(self, ledger_id: int, entry_id: int, *, consumer_id: int = 1) -> None:
        """Acknowledge up to a position, cumulatively."""
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = consumer_id
        command.ack.ack_type = CommandAck.Cumulative
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
        self.send(command)

    def publish(self, sequence_id: int, body: bytes) -> tuple[int, int]:
        """Send one message and wait for its receipt: ledger and entry id."""
        self.send_bytes(send_frame(1, sequence_id, body))
        frame = self.wait_for(BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR)
        if frame.type == BaseCommand.SEND_ERROR:
            raise RuntimeError(f"not published: {frame.command.send_error}")
        position = frame.command.send_receipt.message_id
        return position.ledgerId, position.entryId

    def next_message(self) -> tuple[tuple[int, int], bytes]:
        """The next message's position and payload."""
        frame = self.wait_for(BaseCommand.MESSAGE)
        position = frame.command.message.message_id
        return (position.ledgerId, position.entryId), body_of(frame)


def send_frame(producer_id: int, sequence_id: int, body: bytes) -> bytes:
    """A whole SEND frame with one message and a right checksum."""
    metadata = MessageMetadata(
        producer_name="raw", sequence_id=sequence_id, publish_time=int(time.time() * 1000)
    )
    rest = payload.build(metadata, body)
    return encode.send(producer_id, sequence_id, 1, len(rest)) + rest


def body_of(frame: Frame) -> bytes:
    """The payload of a MESSAGE frame, its checksum verified."""
    assert frame.payload is not None
    assert payload.verify_checksum(frame.payload)
    return bytes(payload.split(frame.payload).payload)


def read_all(address: tuple[str, int], topic: str) -> list[tuple[tuple[int, int], bytes]]:
    """All messages of a topic from the earliest: (ledger id, entry id) and payload.

    The end is the position that GET_LAST_MESSAGE_ID names.
    """
    with RawClient(address) as client:
        client.subscribe(topic, f"read-all-{time.monotonic_ns()}", durable=False)
        command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID)
        command.getLastMessageId.consumer_id = 1
        command.getLastMessageId.request_id = client.request_id()
        client.send(command)
        answer = client.wait_for(BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, BaseCommand.ERROR)
        last = answer.command.getLastMessageIdResponse.last_message_id
        messages: list[tuple[tuple[int, int], bytes]] = []
        if answer.type == BaseCommand.ERROR or last.entryId >= 1 << 63:
            return messages
        client.flow(1000)
        while not messages or messages[-1][0] < (last.ledgerId, last.entryId):
            messages.append(client.next_message())
            if len(messages) % 500 == 0:
                client.flow(500)
        return messages
