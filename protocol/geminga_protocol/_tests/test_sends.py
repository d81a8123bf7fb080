"""SENDs that are cut by their shape are those that protobuf finds, in any stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.encode import frame, varint
from geminga_protocol.frames import FRAME_PADDING_BYTES, Frame, FrameReader, FramingError
from geminga_protocol.payload import MAGIC_CRC32C, build
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSend, MessageMetadata

_STARTS = st.sampled_from([0, 120, 127, 16_370, 2_097_140, (1 << 28) - 3, (1 << 62) - 4])
Sent = tuple[int, int, int, int, bool, bytes]
"""Producer, sequence id, messages, highest sequence id, whether a part of one, what follows."""


def payload(text: bytes, broken: bool = False) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    whole = build(metadata, text)
    return whole[:-1] + bytes((whole[-1] ^ 1,)) if broken else whole


def send_frame(send: CommandSend, data: bytes) -> bytes:
    command = BaseCommand(type=BaseCommand.Type.SEND, send=send).SerializeToString()
    return framed(command, data)


def framed(command: bytes, data: bytes) -> bytes:
    sizes = (len(command) + 4 + len(data)).to_bytes(4) + len(command).to_bytes(4)
    return sizes + command + data


def flat(frames: list[Frame]) -> list[Sent | int]:
    """Each SEND by what it says, other frames by their type."""
    found: list[Sent | int] = []
    for each in frames:
        if each.sends is not None:
            first = each.sends.first_sequence_id
            for number, data in enumerate(each.sends.payloads):
                found.append((each.sends.producer_id, first + number, 1, 0, False, bytes(data)))
        elif each.type == BaseCommand.Type.SEND:
            send = each.command.send
            assert not send.HasField("txnid_least_bits"), "left to the parser, told below"
            found.append(
                (
                    send.producer_id,
                    send.sequence_id,
                    send.num_messages,
                    send.highest_sequence_id,
                    send.is_chunk,
                    bytes(each.payload or b""),
                )
            )
        else:
            found.append(each.type)
    return found


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Runs of SENDs of one shape each, by few producers, with single odd ones between them."""
    pieces: list[bytes] = []
    for _ in range(draw(st.integers(1, 6))):
        producer_id = draw(st.sampled_from([0, 1, 127, 128, 1 << 40]))
        first = draw(_STARTS) + draw(st.integers(0, 3))
        step = draw(st.sampled_from([1, 1, 1, 2, 0]))
        for number in range(draw(st.integers(1, 12))):
            send = CommandSend(producer_id=producer_id, sequence_id=first + number * step)
            odd = draw(st.integers(0, 15))
            if odd == 0:
                send.num_messages = draw(st.sampled_from([0, 1, 2, 300]))
            elif odd == 1:
                send.highest_sequence_id = send.sequence_id + 1
            elif odd == 2:
                send.is_chunk = True
            elif odd == 3:
                send.message_id.ledgerId, send.message_id.entryId = 3, number
            elif odd == 4:
                pieces.append(frame(BaseCommand(type=BaseCommand.Type.PING, ping={})))
            data = payload(b"x" * draw(st.integers(0, 30)), broken=odd == 5)
            if odd == 6:
                data = data[6:]  # without magic and checksum
            elif odd == 7:
                data = data[: draw(st.integers(0, 6))]
            pieces.append(send_frame(send, data))
    return b"".join(pieces)


@given(streams(), st.lists(st.integers(1, 400), max_size=8))
def test_joined_sends_are_those_of_the_parser(stream: bytes, cuts: list[int]) -> None:
    joining, parsing = FrameReader(joins=True), FrameReader()
    seen: list[Sent | int] = []
    start = 0
    for size in [*cuts, len(stream)]:
        frames = joining.feed(stream[start : start + size])
        assert len(flat(frames)) == len(frames) + joining.joined
        seen += flat(frames)
        start += size
    assert seen == flat(parsing.feed(stream))


def plain(sequence_id: int, rest: bytes = b"", *, size: int = 40, producer_id: int = 5) -> bytes:
    """A SEND whose command ends with other bytes."""
    inner = b"\x08" + varint(producer_id) + b"\x10" + varint(sequence_id) + rest
    return framed(b"\x08\x06\x32" + varint(len(inner)) + inner, payload(b"x" * size))


def joined(stream: bytes) -> list[int]:
    """How many SENDs each frame stands for."""
    frames = FrameReader(joins=True).feed(stream)
    return [1 if each.sends is None else len(each.sends.payloads) for each in frames]


def test_two_are_parsed_then_all_are_cut() -> None:
    assert joined(b"".join(plain(n) for n in range(1000, 1600))) == [1, 1, 598]
    assert joined(b"".join(plain(n) for n in range(120, 140))) == [1] * 9 + [11]


@given(st.integers(0, 15))
def test_what_is_encoded_oddly_is_parsed(number: int) -> None:
    """A second sequence id, which counts for protobuf; a field twice; a transaction."""
    again = b"\x10" + varint(300)
    for rest in (again, b"\x18\x01\x18\x01", b"\x20\x01\x28\x01", b"\x30" + varint(9), b"\x38\x01"):
        stream = b"".join(plain(298 + n, rest) for n in range(number))
        assert joined(stream) == [1] * number


def test_one_that_differs_ends_a_run() -> None:
    run = [plain(n) for n in range(200, 210)]
    other = plain(206, b"\x18\x02")
    frames = FrameReader(joins=True).feed(b"".join([*run[:6], other, *run[7:]]))
    assert [each.sends is None for each in frames] == [True, True, False, True, True, False]
    assert [row[1] for row in flat(frames) if isinstance(row, tuple)] == list(range(200, 210))
    assert [row[2] for row in flat(frames) if isinstance(row, tuple)][6] == 2


def test_a_wrong_checksum_is_left_to_the_parser() -> None:
    run = [plain(n) for n in range(200, 210)]
    run[6] = run[6][:-1] + b"y"
    frames = FrameReader(joins=True).feed(b"".join(run))
    refused = frames[3]
    assert refused.sends is None
    assert refused.command.send.sequence_id == 206


def test_a_frame_above_the_limit_is_refused_in_a_run_too() -> None:
    small = [plain(n) for n in range(200, 210)]
    large = plain(210, size=2000 + FRAME_PADDING_BYTES)
    with pytest.raises(FramingError) as failure:
        FrameReader(1000, joins=True).feed(b"".join([*small, large]))
    assert len(flat(failure.value.frames)) == 10


def test_lengths_that_lie_end_a_run() -> None:
    """A frame that ends within what seems to be its checksum."""
    run = b"".join(plain(n) for n in range(200, 205))
    command = plain(205)[8:-1]
    inner = command[: command.index(MAGIC_CRC32C.to_bytes(2))]
    short = framed(inner, MAGIC_CRC32C.to_bytes(2) + b"\0")
    frames = FrameReader(joins=True).feed(run + short + plain(206))
    assert [len(flat([each])) for each in frames] == [1, 1, 3, 1, 1]
    assert frames[3].payload == MAGIC_CRC32C.to_bytes(2) + b"\0"


@pytest.mark.parametrize(
    "other",
    [
        plain(205, b"\x18\x02"),
        plain(205 + 128, b"\x18\x01"),
        plain(205, b"\x18\x01", producer_id=6),
        framed(b"\x08\x07" + plain(205, b"\x18\x01")[10:19], payload(b"x" * 40)),
    ],
    ids=["two messages", "other high bits", "other producer", "other command"],
)
def test_a_command_of_the_same_length_is_no_other(other: bytes) -> None:
    run = b"".join(plain(n, b"\x18\x01") for n in range(200, 205))
    expected = flat(FrameReader().feed(run + other))
    assert flat(FrameReader(joins=True).feed(run + other)) == expected
    assert len(other) == len(plain(205, b"\x18\x01"))


def test_a_frame_that_is_not_whole_waits_even_if_its_beginning_has_the_checksum() -> None:
    run = b"".join(plain(n) for n in range(200, 205))
    whole = plain(205)
    longer = (int.from_bytes(whole[:4]) + 5).to_bytes(4) + whole[4:]
    reader = FrameReader(joins=True)
    assert [len(flat([each])) for each in reader.feed(run + longer)] == [1, 1, 3]
    assert reader.buffered == len(longer)
    [last] = reader.feed(b"12345")
    assert last.payload is not None
    assert bytes(last.payload[-5:]) == b"12345"
