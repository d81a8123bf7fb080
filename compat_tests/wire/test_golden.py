"""Frames recorded between Apache's clients and broker come out of our codec as they went in."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from geminga_protocol import encode, payload
from geminga_protocol._tests.pair import payload_frame
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))


class Recorded(NamedTuple):
    """One frame of a golden case."""

    side: str
    command: str
    raw: bytes


@cache
def frames_of(case: str) -> list[Recorded]:
    """The frames of a golden case, in the order in which they passed."""
    document = json.loads((GOLDEN / f"{case}.json").read_text())
    return [
        Recorded(frame["from"], frame["command"], bytes.fromhex(frame["hex"]))
        for frame in document["frames"]
    ]


def parsed(raw: bytes) -> Frame:
    """The one frame in these bytes."""
    (frame,) = FrameReader().feed(raw)
    return frame


def split_prefix(raw: bytes) -> tuple[bytes, bytes]:
    """The part up to the end of the command, and what follows it."""
    end = 8 + int.from_bytes(raw[4:8], "big")
    return raw[:end], raw[end:]


def test_there_are_cases() -> None:
    assert len(CASES) >= 25


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1024, 1 << 20])
def test_streams_are_cut_into_the_recorded_frames(case: str, chunk_bytes: int) -> None:
    for side in ("client", "broker"):
        expected = [frame for frame in frames_of(case) if frame.side == side]
        stream = b"".join(frame.raw for frame in expected)
        reader = FrameReader()
        found: list[tuple[str, bytes | None]] = []
        for start in range(0, len(stream), chunk_bytes):
            for frame in reader.feed(stream[start : start + chunk_bytes]):
                body = None if frame.payload is None else bytes(frame.payload)
                found.append((BaseCommand.Type.Name(frame.type), body))
        assert found == [(each.command, split_prefix(each.raw)[1] or None) for each in expected]
        assert reader.buffered == 0


@pytest.mark.parametrize("case", CASES)
def test_commands_are_encoded_to_the_same_bytes(case: str) -> None:
    for recorded in frames_of(case):
        frame = parsed(recorded.raw)
        if frame.payload is None:
            assert encode.frame(frame.command) == recorded.raw, recorded.command
        else:
            again = b"".join(payload_frame(frame.command, frame.payload))
            assert again == recorded.raw, recorded.command


@pytest.mark.parametrize("case", CASES)
def test_encoders_of_the_hot_path_write_what_apache_writes(case: str) -> None:
    for recorded in frames_of(case):
        prefix, rest = split_prefix(recorded.raw)
        command = parsed(recorded.raw).command
        if recorded.command == "SEND_RECEIPT":
            assert encode_receipt(command) == prefix
        elif recorded.command == "MESSAGE":
            assert encode_message(command, len(rest)) == prefix
        elif recorded.command == "SEND" and case.startswith("java_"):
            assert encode_send(command, len(rest)) == prefix


def encode_receipt(command: BaseCommand) -> bytes:
    """The receipt by our own encoder."""
    receipt = command.send_receipt
    return encode.send_receipt(
        receipt.producer_id,
        receipt.sequence_id,
        receipt.message_id.ledgerId,
        receipt.message_id.entryId,
        receipt.highest_sequence_id,
    )


def encode_message(command: BaseCommand, payload_size: int) -> bytes:
    """The front of the message frame by our own encoder."""
    message = command.message
    header = encode.MessageHeader(message.consumer_id, message.message_id.partition)
    return header.build(
        message.message_id.ledgerId,
        message.message_id.entryId,
        payload_size,
        message.redelivery_count,
        tuple(message.ack_set),
        message.consumer_epoch if message.HasField("consumer_epoch") else None,
    )


def encode_send(command: BaseCommand, payload_size: int) -> bytes:
    """The front of the send frame by our own encoder."""
    send = command.send
    return encode.send(
        send.producer_id,
        send.sequence_id,
        send.num_messages,
        payload_size,
        send.highest_sequence_id,
        send.is_chunk,
    )


@pytest.mark.parametrize("case", CASES)
def test_message_headers_are_verified_and_built_alike(case: str) -> None:
    for recorded in frames_of(case):
        frame = parsed(recorded.raw)
        if frame.payload is None:
            continue
        assert payload.verify_checksum(frame.payload)
        parts = payload.split(frame.payload)
        metadata = payload.parse_metadata(frame.payload)
        again = payload.build(metadata, parts.payload, checksum=parts.checksum is not None)
        assert again == bytes(frame.payload)
        damaged = bytearray(frame.payload)
        damaged[-1] ^= 1
        assert parts.checksum is None or not payload.verify_checksum(memoryview(damaged))
