"""Peers that lie, dawdle or never read: closed or answered, unnoticed by the others, no memory."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from compat_tests.processes import ServerProcess
from compat_tests.wire.raw import ConnectionEnded, RawClient, send_frame
from geminga_protocol import encode
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSubscribe

_CONNECTIONS = 1000
_MEMORY_FLAT_BYTES = 60_000_000


def topic(name: str) -> str:
    """A topic of the test's own."""
    return f"persistent://public/default/hostile-{name}"


@pytest.fixture
def good(standalone: ServerProcess) -> Iterator[RawClient]:
    """A well-behaved client that publishes and consumes beside."""
    with RawClient(standalone.address) as client:
        name = topic(f"good-{time.monotonic_ns()}")
        client.producer(name)
        client.subscribe(name, "good")
        client.flow(100_000)
        yield client


def still_served(good: RawClient, number: int) -> None:
    """The good client's message goes round, sooner than anything here times out."""
    began = time.monotonic()
    good.publish(number, b"good %d" % number)
    assert good.next_message()[1] == b"good %d" % number
    assert time.monotonic() - began < 20


def ping() -> bytes:
    """A whole PING frame."""
    command = BaseCommand(type=BaseCommand.PING)
    command.ping.SetInParent()
    return encode.frame(command)


def unknown_type() -> bytes:
    """A well-cut frame whose command type no version knows."""
    body = b"\x08\xe7\x07"  # field 1 (type) = 999
    return struct.pack(">II", len(body) + 4, len(body)) + body


def half_a_send() -> bytes:
    """The first half of a SEND frame."""
    whole = send_frame(1, 1, b"x" * 1000)
    return whole[: len(whole) // 2]


BAD: dict[str, Callable[[random.Random], bytes]] = {
    "too large": lambda _: struct.pack(">II", 100_000_000, 10) + b"x" * 100,
    "largest length": lambda _: b"\xff" * 64,
    "negative command size": lambda _: struct.pack(">Ii", 20, -1) + b"x" * 16,
    "command larger than its frame": lambda _: struct.pack(">II", 20, 4000) + b"x" * 16,
    "nothing inside": lambda _: struct.pack(">I", 0) * 8,
    "noise": lambda chance: chance.randbytes(300),
    "not protobuf": lambda chance: struct.pack(">II", 104, 100) + chance.randbytes(100),
    "torn": lambda _: half_a_send(),
    "unknown type": lambda _: unknown_type(),
    "HTTP": lambda _: b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n",
}


@pytest.mark.parametrize("kind", sorted(BAD))
@pytest.mark.parametrize("handshake", [True, False])
def test_bad_bytes_are_answered_or_closed(
    standalone: ServerProcess, good: RawClient, kind: str, handshake: bool
) -> None:
    with RawClient(standalone.address, handshake=handshake) as client:
        client.send_bytes(BAD[kind](random.Random(kind)))
        if kind == "unknown type" or (kind == "torn" and handshake):
            # The first may be from a newer client and is passed over; the second is waited for.
            still_served(good, 1)
            return
        if kind == "torn":
            client.socket.shutdown(socket.SHUT_WR)
        try:
            frame = client.next_frame()
        except (ConnectionEnded, ConnectionResetError):
            pass
        else:
            assert frame.type in (BaseCommand.ERROR, BaseCommand.SEND_ERROR)
    still_served(good, 2)


def test_unknown_type_does_not_end_the_connection(standalone: ServerProcess) -> None:
    with RawClient(standalone.address) as client:
        client.send_bytes(unknown_type() + ping())
        client.wait_for(BaseCommand.PONG)


def test_one_byte_at_a_time(standalone: ServerProcess) -> None:
    with RawClient(standalone.address) as client:
        client.producer(topic("bytes"))
        for byte in send_frame(1, 0, b"slow"):
            client.send_bytes(bytes([byte]))
        client.wait_for(BaseCommand.SEND_RECEIPT)


def test_bad_checksum_is_refused_and_the_rest_goes_on(standalone: ServerProcess) -> None:
    with RawClient(standalone.address) as client:
        client.producer(topic("checksum"))
        client.publish(0, b"before")
        damaged = bytearray(send_frame(1, 1, b"damaged"))
        damaged[-1] ^= 1
        client.send_bytes(bytes(damaged))
        frame = client.wait_for(BaseCommand.SEND_ERROR, BaseCommand.SEND_RECEIPT)
        assert frame.type == BaseCommand.SEND_ERROR
        assert frame.command.send_error.sequence_id == 1
        client.publish(2, b"after")
        client.subscribe(topic("checksum"), "s")
        client.flow(10)
        assert [client.next_message()[1] for _ in range(2)] == [b"before", b"after"]


def test_commands_before_connect_are_refused(standalone: ServerProcess) -> None:
    with (
        RawClient(standalone.address, handshake=False) as client,
        pytest.raises((ConnectionEnded, RuntimeError)),
    ):
        client.producer(topic("early"))


@pytest.mark.alone
@pytest.mark.slow
def test_a_thousand_bad_connections(standalone: ServerProcess, good: RawClient) -> None:
    chance = random.Random(1000)
    still_served(good, 0)
    before = standalone.rss_bytes()
    kinds = sorted(BAD)
    with ExitStack() as stack:
        for number in range(_CONNECTIONS):
            client = stack.enter_context(RawClient(standalone.address, handshake=False))
            try:
                client.send_bytes(BAD[kinds[number % len(kinds)]](chance))
            except ConnectionEnded:
                continue
            if number % 100 == 0:
                still_served(good, number + 1)
        assert standalone.rss_bytes() - before < _MEMORY_FLAT_BYTES
    still_served(good, 5000)
    deadline = time.monotonic() + 60  # the ends of the connections reach the other process
    while standalone.rss_bytes() - before >= _MEMORY_FLAT_BYTES:
        assert time.monotonic() < deadline, "the memory isn't given back"
        time.sleep(0.05)


@pytest.mark.alone
@pytest.mark.slow
def test_a_consumer_that_never_reads(standalone: ServerProcess, good: RawClient) -> None:
    name = topic("never-reads")
    body = b"x" * 65_536
    with (
        RawClient(standalone.address) as producer,
        RawClient(standalone.address, receive_buffer_bytes=65_536) as lazy,
    ):
        lazy.subscribe(name, "lazy", kind=CommandSubscribe.Shared)
        lazy.flow(1_000_000)
        producer.producer(name)
        for number in range(3000):  # 190 MB: caches of a fixed size are full then
            producer.publish(number, body)
        before = standalone.rss_bytes()
        for number in range(3000, 6000):
            producer.publish(number, body)
        grown = standalone.rss_bytes() - before
        assert grown < _MEMORY_FLAT_BYTES, f"grew by {grown / 1e6:.0f} MB"
        still_served(good, 1)


@pytest.mark.alone
@pytest.mark.slow
def test_a_producer_that_never_reads_its_receipts(
    standalone: ServerProcess, good: RawClient
) -> None:
    name = topic("no-receipts")
    with RawClient(standalone.address, receive_buffer_bytes=4096, timeout_s=3) as client:
        client.producer(name)
        frames = b"".join(send_frame(1, number, b"") for number in range(2000))
        before = standalone.rss_bytes()
        stopped = False
        for _ in range(300):  # 600 000 messages, whose receipts are some 30 MB
            try:
                client.send_bytes(frames)
            except TimeoutError:
                stopped = True
                break
        grown = standalone.rss_bytes() - before
        assert stopped or grown < _MEMORY_FLAT_BYTES, f"grew by {grown / 1e6:.0f} MB"
        assert grown < 2.5 * _MEMORY_FLAT_BYTES, f"grew by {grown / 1e6:.0f} MB"
        still_served(good, 1)


def test_a_connection_that_falls_silent_is_closed_cleanly(standalone: ServerProcess) -> None:
    with RawClient(standalone.address) as client:
        client.producer(topic("vanishing"))
        linger = struct.pack("ii", 1, 0)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # a reset, not an end
    with RawClient(standalone.address) as client:
        client.producer(topic("vanishing"))
        client.publish(0, b"works")
