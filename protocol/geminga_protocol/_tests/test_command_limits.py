"""Bounds on a peer's commands (PR-01, PR-16)."""

from __future__ import annotations

import struct

import pytest

from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.encode import frame
from geminga_protocol.frames import BROKEN, CommandLimits, Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

KIND = BaseCommand.Type
LIMITS = CommandLimits(100_000, {KIND.PRODUCER: 1_000_000}, 1000)


def in_parts(stream: bytes, size: int = 50_000, limits: CommandLimits = LIMITS) -> list[Frame]:
    reader = FrameReader(limits=limits)
    found = []
    for at in range(0, len(stream), size):
        found += reader.feed(stream[at : at + size])
    return found


def lookup(size: int) -> bytes:
    command = BaseCommand(type=KIND.LOOKUP)
    command.lookupTopic.topic, command.lookupTopic.request_id = "t" * size, 7
    return frame(command)


def producer(schema: bytes, pairs: int = 0) -> bytes:
    command = BaseCommand(type=KIND.PRODUCER)
    body = command.producer
    body.topic, body.producer_id, body.request_id = "t", 1, 7
    body.schema.name, body.schema.type, body.schema.schema_data = "", 2, schema
    for number in range(pairs):
        body.metadata.add(key=str(number), value="")
    return frame(command)


@pytest.mark.parametrize("size", [1, 3, 50_000])
def test_a_command_above_the_limit_is_not_parsed(size: int) -> None:
    with pytest.raises(FramingError, match=r"command of .* bytes is above the limit of 100000"):
        in_parts(lookup(100_001), size)
    [taken] = in_parts(lookup(99_900), size)
    assert taken.command.lookupTopic.request_id == 7


def test_a_type_may_have_a_limit_of_its_own() -> None:
    [taken] = in_parts(producer(b"x" * 900_000))
    assert len(taken.command.producer.schema.schema_data) == 900_000
    with pytest.raises(FramingError):
        in_parts(producer(b"x" * 1_000_001))


def test_without_its_type_in_front_a_command_has_the_usual_limit() -> None:
    usual = producer(b"x" * 900_000)
    body = usual[8:]
    odd = struct.pack(">II", len(body) + 4, len(body)) + body[2:] + body[:2]
    with pytest.raises(FramingError):
        in_parts(odd)


def test_a_large_payload_is_no_large_command() -> None:
    command = frame(BaseCommand(type=KIND.PING))[8:]
    stream = struct.pack(">II", 4 + len(command) + 500_000, len(command)) + command + bytes(500_000)
    [taken] = in_parts(stream)
    assert taken.payload == bytes(500_000)


@pytest.mark.parametrize(("pairs", "broken"), [(1000, False), (1001, True)])
def test_long_lists_of_texts_are_not_scanned(pairs: int, broken: bool) -> None:
    [taken] = in_parts(producer(b"x" * 100_000, pairs))
    assert (taken.type == BROKEN) is broken
    if broken:
        assert "more than 1000 entries" in str(taken.error)
    assert taken.command.producer.request_id == 7


def test_wrong_text_in_a_large_command_is_found() -> None:
    stream = lookup(99_000).replace(b"ttt", b"t\xfft", 1)
    [taken] = in_parts(stream)
    assert taken.type == BROKEN
    assert "UTF-8" in str(taken.error)


@pytest.mark.alone
@pytest.mark.slow
def test_a_list_as_long_as_a_frame_costs_little() -> None:
    stream = producer(b"", 350_000)
    limits = LIMITS._replace(bytes_max=5 << 20, bytes_by_kind={})
    [taken] = in_parts(stream, limits=limits)
    assert taken.type == BROKEN
    assert cpu_s(lambda: in_parts(stream, limits=limits), 0.2) < 0.2  # 0.4 s with all texts checked


@pytest.mark.parametrize("kind", ["ack", "redeliverUnacknowledgedMessages"])
def test_empty_message_ids_are_refused_without_a_scan(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = BaseCommand(
        type=BaseCommand.ACK if kind == "ack" else BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    )
    body = getattr(command, kind)
    body.consumer_id = 1
    if kind == "ack":
        body.ack_type = 0
    ids = getattr(body, "message_id" if kind == "ack" else "message_ids")
    for _ in range(100_000):
        ids.add()
    # A check of each id would name or count the missing fields.
    monkeypatch.setattr("geminga_protocol.messages.lacking", lambda *_: 1 / 0)
    (frame,) = FrameReader().feed(_framed(command.SerializePartialToString()))
    assert frame.type == BROKEN
    assert "message ids without ledger or entry" in str(frame.error)


def _framed(command: bytes) -> bytes:
    size = len(command)
    return (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + command
