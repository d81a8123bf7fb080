"""Frames from any chunking, wrong lengths, broken commands."""

from __future__ import annotations

import struct

import pytest

from geminga_protocol._tests.pair import payload_frame
from geminga_protocol.encode import frame, send
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.frames import BROKEN, FRAME_PADDING_BYTES, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand


def ping() -> bytes:
    command = BaseCommand(type=BaseCommand.PING)
    command.ping.SetInParent()
    return frame(command)


def test_frames_of_one_chunk_view_it() -> None:
    body = bytes(range(256)) * 4
    stream = send(1, 7, 1, len(body)) + body + ping()
    first, second = FrameReader().feed(stream)
    assert (first.type, first.command.send.sequence_id) == (BaseCommand.SEND, 7)
    assert first.payload is not None
    assert first.payload.obj is stream
    assert first.payload == body
    assert (second.type, second.payload, second.error) == (BaseCommand.PING, None, None)
    assert "ping" in repr(second)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_chunks_of_any_size_give_the_same_frames(step: int) -> None:
    body = b"x" * 5000
    stream = ping() + send(1, 7, 1, len(body)) + body + ping() + ping()
    reader = FrameReader()
    frames = []
    for at in range(0, len(stream), step):
        frames += reader.feed(stream[at : at + step])
    assert [each.type for each in frames] == [18, 6, 18, 18]
    assert frames[1].payload == body
    assert reader.buffered == 0


def test_an_announced_size_allocates_nothing() -> None:
    reader = FrameReader(max_message_size=1 << 30)
    assert reader.feed(struct.pack(">II", 1 << 29, 8) + b"ab") == []
    assert reader.buffered == 10


def test_a_frame_above_the_limit_is_fatal_though_it_came_whole() -> None:
    body = b"x" * (1000 + FRAME_PADDING_BYTES)
    stream = ping() + send(1, 7, 1, len(body)) + body
    reader = FrameReader(max_message_size=1000)
    with pytest.raises(FramingError, match="above the limit of 11240 bytes") as caught:
        reader.feed(stream)
    assert [each.type for each in caught.value.frames] == [BaseCommand.PING]
    assert len(FrameReader(max_message_size=2000).feed(stream)) == 2


def test_too_large_frame_is_fatal_and_frames_before_it_are_kept() -> None:
    reader = FrameReader(max_message_size=1000)
    largest = 1000 + FRAME_PADDING_BYTES - 4
    assert reader.feed(struct.pack(">I", largest)) == []
    reader = FrameReader(max_message_size=1000)
    with pytest.raises(FramingError, match="above the limit of 11240 bytes") as caught:
        reader.feed(ping() + struct.pack(">I", largest + 1))
    assert caught.value.fatal
    assert [each.type for each in caught.value.frames] == [BaseCommand.PING]
    assert reader.buffered == 0
    with pytest.raises(FramingError):
        reader.feed(ping())


@pytest.mark.parametrize(
    "lengths", [struct.pack(">I", 3), struct.pack(">II", 4, 1), struct.pack(">II", 100, 97)]
)
@pytest.mark.parametrize("step", [1, 100])
def test_lengths_that_do_not_fit_are_fatal(lengths: bytes, step: int) -> None:
    reader = FrameReader()
    with pytest.raises(FramingError, match="lengths don't fit"):
        for at in range(0, len(lengths), step):
            reader.feed(lengths[at : at + step])


def raw(body: bytes) -> bytes:
    return struct.pack(">II", len(body) + 4, len(body)) + body


def test_unknown_type_comes_with_its_number() -> None:
    (only,) = FrameReader().feed(raw(b"\x08\x64\xa2\x06\x02\x08\x01"))
    assert (only.type, only.error) == (100, None)


def test_missing_required_field_is_a_broken_frame_that_can_be_answered() -> None:
    (only, after) = FrameReader().feed(raw(b"\x08\x0b\x5a\x02\x08\x05") + ping())
    assert only.type == BROKEN
    assert isinstance(only.error, RemoteProtocolError)
    assert not only.error.fatal
    assert str(only.error) == "flow lacks required fields: messagePermits"
    assert only.command.flow.consumer_id == 5
    assert after.type == BaseCommand.PING


@pytest.mark.parametrize("body", [b"\x08", b"\x32\xff\x01", b"\xff" * 12])
def test_undecodable_command_is_a_broken_frame(body: bytes) -> None:
    (only,) = FrameReader().feed(raw(body))
    assert only.type == BROKEN
    assert only.error is not None
    assert only.error.fatal


@pytest.mark.parametrize("body", [b"", b"\x08\x00", b"\x0a\x00"])
def test_missing_type_is_broken(body: bytes) -> None:
    (only,) = FrameReader().feed(raw(body))
    assert only.type == BROKEN
    assert only.error is not None


def test_type_without_its_command_is_broken() -> None:
    (only,) = FrameReader().feed(raw(b"\x08\x0b"))
    assert only.type == BROKEN
    assert str(only.error) == "flow lacks required fields: consumer_id, messagePermits"


@pytest.mark.parametrize(
    "body",
    [
        b"\x08\x17\xba\x01\x05\x0a\x01\xff\x10\x01",
        b"\xba\x01\x05\x0a\x01\xff\x10\x01\x08\x17",
        b"\x08\x17\xba\x01\x0d\x0a\x01t\x10\x01\x42\x06\x0a\x01k\x12\x01\xff",
        b"\x08\x24\xa2\x02\x05\x12\x03\x0a\x01\xff",
        b"\x08\x20\x82\x02\x02\x08\x01\x82\x02\x03\x12\x01\xff",
    ],
)
def test_text_that_is_not_utf8_is_broken(body: bytes) -> None:
    (only,) = FrameReader().feed(raw(body))
    assert only.type == BROKEN
    assert "not UTF-8" in str(only.error)


def test_type_after_its_command_is_understood() -> None:
    (only,) = FrameReader().feed(raw(b"\x5a\x04\x08\x05\x10\x07\x08\x0b"))
    assert only.type == BaseCommand.FLOW
    assert only.command.flow.messagePermits == 7


def test_payload_frame_round_trip() -> None:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = 300
    (only,) = FrameReader().feed(b"".join(payload_frame(command, memoryview(b"abc"))))
    assert only.command == command
    assert only.payload == b"abc"


def test_the_limit_can_be_set_after_connected() -> None:
    reader = FrameReader()
    reader.max_message_size = 100
    assert reader.max_message_size == 100
    with pytest.raises(FramingError):
        reader.feed(struct.pack(">I", 100 + FRAME_PADDING_BYTES))


def test_only_a_frame_that_spans_chunks_is_copied() -> None:
    body = b"x" * 1000
    stream = (send(1, 1, 1, 1000) + body) * 3
    reader = FrameReader()
    assert reader.feed(stream[:500]) == []
    rest = stream[500:]
    spanning, second, third = reader.feed(rest)
    for each in (second, third):
        assert each.payload is not None
        assert each.payload.obj is rest
    assert spanning.payload == body
    assert spanning.payload is not None
    assert len(bytes(spanning.payload.obj)) < 1100


def test_small_chunks_are_joined() -> None:
    reader = FrameReader()
    stream = send(1, 1, 1, 100_000) + bytes(100_000)
    for at in range(0, 50_000, 2):
        assert reader.feed(stream[at : at + 2]) == []
    assert reader.buffered == 50_000
    assert len(reader._chunks) == 1
    (only,) = reader.feed(stream[50_000:])
    assert only.payload == bytes(100_000)
