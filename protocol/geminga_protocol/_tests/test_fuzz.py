"""Mutated streams give frames or RemoteProtocolError, nothing else (spec PR-16)."""

from __future__ import annotations

import random
import time

import pytest

from geminga_protocol import payload
from geminga_protocol.batch import split_batch
from geminga_protocol.commands import connection, consuming, lookup, producing
from geminga_protocol.encode import MessageHeader, send
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.frames import BROKEN, SUBMESSAGE, Frame, FrameReader, FramingError
from geminga_protocol.keys import sticky_key
from geminga_protocol.message_id import MessageId
from geminga_protocol.messages import has_bad_text
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe, MessageMetadata

MAX_MESSAGE_SIZE = 64 * 1024


def seeds() -> list[bytes]:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, partition_key="k", num_messages_in_batch=2
    )
    body = payload.build(metadata, b"\x00\x00\x00\x02\x18\x03abc" * 2)
    entry = payload.broker_entry_prefix(5, 6) + body
    return [
        connection.connect("client", auth_method_name="token", auth_data=b"x" * 20),
        connection.PING,
        consuming.subscribe("t", "s", CommandSubscribe.Shared, 1, 2),
        consuming.ack(1, [MessageId(1, 2, ack_set=(3, -1)), MessageId(3, 4)]),
        lookup.lookup("persistent://public/default/t", 5),
        producing.producer("t", 1, 2, metadata={"a": "b"}),
        send(1, 2, 2, len(body)) + body,
        MessageHeader(1, -1).build(5, 6, len(entry), ack_set=(1, -5)) + entry,
    ]


def mutated(rng: random.Random, stream: bytes) -> bytes:
    data = bytearray(stream)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data)) if data else 0
        choice = rng.randrange(5)
        if choice == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif choice == 1 and data:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif choice == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif choice == 3:
            del data[at : at + rng.randrange(1, 9)]
        else:
            end = at + rng.randrange(40)
            data[at:at] = data[at:end]
    return bytes(data)


def drain(stream: bytes, chunks: list[int]) -> tuple[list[Frame], bool]:
    """Frames, and whether the stream ended in a framing error."""
    reader = FrameReader(MAX_MESSAGE_SIZE)
    frames: list[Frame] = []
    at = 0
    for size in [*chunks, len(stream)]:
        try:
            frames += reader.feed(stream[at : at + size])
        except FramingError as error:
            return frames + error.frames, error.fatal
        at += size
        assert reader.buffered <= min(at, MAX_MESSAGE_SIZE + 10 * 1024)
    return frames, False


def use(frame: Frame) -> None:
    """Use a frame as a session does, so that lazy parsing hides no error."""
    if frame.type == BROKEN:
        assert isinstance(frame.error, RemoteProtocolError)
        return
    assert frame.error is None
    if frame.type in SUBMESSAGE:
        body = getattr(frame.command, SUBMESSAGE[frame.type])
        assert body.IsInitialized()
        assert not has_bad_text(body)
    if frame.payload is None:
        return
    payload.verify_checksum(frame.payload)
    try:
        metadata = payload.parse_metadata(frame.payload)
        sticky_key(metadata)
        split_batch(metadata, payload.split(frame.payload).payload)
    except RemoteProtocolError:
        pass


@pytest.mark.slow
def test_mutated_streams_for_a_second() -> None:
    sources = seeds()
    deadline = time.monotonic() + 1.0
    rounds = 0
    while time.monotonic() < deadline:
        rng = random.Random(rounds)
        stream = mutated(rng, b"".join(rng.choices(sources, k=rng.randrange(1, 5))))
        whole, failed = drain(stream, [])
        chunks = [rng.randrange(1, 30) for _ in range(rng.randrange(40))]
        parts, failed_too = drain(stream, chunks)
        for frame in whole:
            use(frame)
        assert failed == failed_too, f"round {rounds}"
        assert [(f.type, f.command, f.payload, str(f.error)) for f in whole] == [
            (f.type, f.command, f.payload, str(f.error)) for f in parts
        ], f"round {rounds}"
        rounds += 1
    assert rounds > 100


def test_every_truncation_of_a_stream() -> None:
    stream = b"".join(seeds())
    whole, _ = drain(stream, [])
    for size in range(0, len(stream), 7):
        frames, failed = drain(stream[:size], [])
        assert not failed
        assert [each.command for each in frames] == [each.command for each in whole[: len(frames)]]
