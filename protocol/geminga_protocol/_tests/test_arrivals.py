"""What is cut by hand is what protobuf reads, whatever comes between and in whatever pieces."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol import arrivals
from geminga_protocol.arrivals import ArrivalReader, MessageRun, ReceiptRun
from geminga_protocol.commands.consuming import active_consumer_change
from geminga_protocol.encode import MessageHeader, frame, send_receipt, varint
from geminga_protocol.frames import Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageIdData

NOWHERE = (1 << 64) - 1
Told = tuple[object, ...]
U64 = st.integers(0, (1 << 64) - 1)
IDS = st.sampled_from([0, 1, 127, 128, 300, 1 << 14, (1 << 64) - 1]) | U64
"""Of producers, consumers and ledgers: few, so that frames are often alike."""
FIRST = st.sampled_from([0, 120, 127, 128, 200, 16_380, 2_097_150, 1 << 28, (1 << 64) - 1]) | U64


def told_of(frame: Frame) -> Iterator[Told]:
    """What a frame says, one for each of a run."""
    if isinstance(frame, ReceiptRun):
        for n in range(frame.count):
            yield (
                *("receipt", frame.producer_id, frame.sequence_id + n),
                *(frame.ledger_id, frame.entry_id + n),
            )
    elif isinstance(frame, MessageRun):
        for entry_id, begin, end in frame.places:
            yield (
                *("message", frame.consumer_id, frame.ledger_id, entry_id),
                *(frame.redelivery_count, tuple(frame.ack_set), frame.epoch),
                frame.data[begin:end],
            )
    elif frame.type == BaseCommand.SEND_RECEIPT:
        receipt = frame.command.send_receipt
        place = receipt.message_id
        if not receipt.HasField("message_id"):
            place = MessageIdData(ledgerId=NOWHERE, entryId=NOWHERE)
        yield (
            *("receipt", receipt.producer_id, receipt.sequence_id),
            *(place.ledgerId, place.entryId),
        )
    elif frame.type == BaseCommand.MESSAGE and frame.payload is not None:
        message = frame.command.message
        place = message.message_id
        epoch = message.consumer_epoch if message.HasField("consumer_epoch") else None
        yield (
            *("message", message.consumer_id, place.ledgerId, place.entryId),
            *(message.redelivery_count, tuple(message.ack_set), epoch, bytes(frame.payload)),
        )
    else:
        yield (
            *("other", frame.type, frame.command.SerializePartialToString()),
            *(None if frame.payload is None else bytes(frame.payload), str(frame.error)),
        )


def read(reader: FrameReader, pieces: list[bytes]) -> list[Told]:
    found: list[Told] = []
    try:
        for piece in pieces:
            for each in reader.feed(piece):
                found += told_of(each)
    except FramingError as error:
        for each in error.frames:
            found += told_of(each)
        found.append(("fatal", str(error)))
    return found


def receipts(producer_id: int, sequence_id: int, ledger_id: int, entry_id: int, n: int) -> bytes:
    return send_receipt(producer_id, sequence_id + n, ledger_id, entry_id + n)


@st.composite
def runs(draw: st.DrawFn) -> list[bytes]:
    """Frames that follow one another as a broker sends them."""
    known = draw(IDS), draw(FIRST), draw(IDS), draw(FIRST)
    count = draw(st.integers(1, 140))
    if draw(st.booleans()):
        step = draw(st.sampled_from([1, 1, 1, 2, 100]))
        return [receipts(*known, n * step) for n in range(count)]
    consumer_id, entry_id, ledger_id, _ = known
    header = MessageHeader(consumer_id, draw(st.sampled_from([-1, 0, 3])))
    redelivery_count = draw(st.sampled_from([0, 0, 1, 300]))
    ack_set = draw(st.sampled_from([(), (), (1,), (1, 1 << 63)]))
    epoch = draw(st.sampled_from([None, None, 0, 5]))
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=3))
    step = draw(st.sampled_from([1, 1, 1, 130, -1]))
    made: list[bytes] = []
    for n in range(min(count, 20)):
        payload = bytes([n]) * sizes[n % len(sizes)]
        made.append(
            header.build(
                *(ledger_id, (entry_id + n * step) % (1 << 64), len(payload)),
                *(redelivery_count, ack_set, epoch),
            )
            + payload
        )
    return made


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    frames: list[bytes] = []
    for run in draw(st.lists(runs(), min_size=1, max_size=4)):
        frames += run
        if draw(st.integers(0, 3)) == 0:
            frames.append(active_consumer_change(1, True))
    if draw(st.booleans()):
        frames = draw(st.permutations(frames))
    # Some bytes are other ones, in lengths too.
    for _ in range(draw(st.integers(0, 3))):
        n = draw(st.integers(0, len(frames) - 1))
        at = draw(st.integers(0, len(frames[n]) - 1))
        if at > 7 or draw(st.integers(0, 9)) == 0:
            wrong = bytearray(frames[n])
            wrong[at] ^= draw(st.sampled_from([1, 0x80, 0xFF, 2, 8]))
            frames[n] = bytes(wrong)
    stream = b"".join(frames)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(streams())
@pytest.mark.slow
def test_both_read_the_same(pieces: list[bytes]) -> None:
    assert read(ArrivalReader(), pieces) == read(FrameReader(), pieces)


@given(runs(), st.data())
def test_both_read_the_same_of_frames_with_wrong_bytes(
    frames: list[bytes], data: st.DataObject
) -> None:
    """Each of the frames has one byte that is another, behind others of the same shape."""
    wrong: list[bytes] = []
    for each in frames[:6]:
        changed = bytearray(each)
        changed[data.draw(st.integers(8, len(each) - 1))] ^= data.draw(st.integers(1, 255))
        wrong += [each, bytes(changed)]
    stream = b"".join(wrong)
    assert read(ArrivalReader(), [stream]) == read(FrameReader(), [stream])


def test_receipts_that_count_up_are_one_run() -> None:
    frames = [receipts(3, 1000, 77, 500, n) for n in range(100)]
    first, *runs = ArrivalReader().feed(b"".join(frames))
    assert isinstance(first, ReceiptRun)
    assert all(isinstance(each, ReceiptRun) for each in runs)
    counts = [each.count for each in runs if isinstance(each, ReceiptRun)]
    # 1024 and 512 begin another run: there more than the lowest byte changes, and the first of
    # each is parsed.
    assert (first.count, counts) == (1, [11, 1, 11, 1, 75])


def test_a_receipt_without_an_id_is_of_a_message_stored_nowhere() -> None:
    """Not of the first entry of ledger 0."""
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    command.send_receipt.producer_id, command.send_receipt.sequence_id = 1, 2
    (receipt,) = ArrivalReader().feed(frame(command))
    assert isinstance(receipt, ReceiptRun)
    assert (receipt.ledger_id, receipt.entry_id) == (NOWHERE, NOWHERE)


def test_messages_of_one_shape_are_one_run() -> None:
    header = MessageHeader(1, -1)
    frames = [header.build(77, 500 + n, 5 + n) + bytes(5 + n) for n in range(100)]
    found = ArrivalReader().feed(b"".join(frames))
    assert [len(each.places) for each in found if isinstance(each, MessageRun)] == [1, 11, 1, 87]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_SHAPES_MAX", 10)
    reader = ArrivalReader()
    header = [MessageHeader(number, -1) for number in range(100)]
    stream = b"".join(each.build(1, 500, 3) + b"abc" for each in header)
    stream += b"".join(send_receipt(number, 500, 1, 500) for number in range(100))
    reader.feed(stream)
    assert len(reader._messages) <= 10
    assert len(reader._receipts) <= 10


def test_a_long_command_is_not_remembered() -> None:
    """The set of what is left of a batch has up to 160 KB, and no other entry's is the same."""
    reader = ArrivalReader()
    header = MessageHeader(1, -1)
    ack_sets = [tuple(range(1, words)) for words in (10, 11, 1000, 1001)]
    stream = b"".join(header.build(1, 500, 3, 0, each) + b"abc" for each in ack_sets)
    assert len(read(reader, [stream])) == 4
    remembered = [shape.before + shape.after for shape in reader._messages.values()]
    assert max(map(len, remembered), default=0) <= 128


def test_a_message_without_payload_stays_a_frame() -> None:
    command = BaseCommand(type=BaseCommand.MESSAGE)
    command.message.consumer_id = 1
    command.message.message_id.ledgerId = 2
    command.message.message_id.entryId = 300
    (found,) = ArrivalReader().feed(frame(command))
    assert not isinstance(found, MessageRun)


@pytest.mark.parametrize("lengths", [(3, 5), (4, 1), (0, 0), (100, 97)])
def test_lengths_that_lie_are_fatal_behind_a_run(lengths: tuple[int, int]) -> None:
    stream = receipts(1, 200, 5, 200, 0) + receipts(1, 200, 5, 200, 1)
    stream += struct.pack(">II", *lengths) + bytes(200)
    told = read(ArrivalReader(), [stream])
    assert [each[0] for each in told] == ["receipt", "receipt", "fatal"]
    assert told == read(FrameReader(), [stream])


def test_a_message_above_the_limit_is_fatal_behind_its_like() -> None:
    header = MessageHeader(1, -1)
    stream = b"".join(header.build(7, 500 + n, size) + bytes(size) for n, size in enumerate((9, 9)))
    stream += header.build(7, 502, 11_000) + bytes(11_000)
    reader, plain = ArrivalReader(), FrameReader()
    reader.max_message_size = plain.max_message_size = 100
    told = read(reader, [stream])
    assert [each[0] for each in told] == ["message", "message", "fatal"]
    assert told == read(plain, [stream])


def test_fields_that_come_twice_are_not_taken_for_the_usual_form() -> None:
    """The last one holds: so the number that differs isn't the entry id."""
    frames: list[bytes] = []
    for entry_id in (300, 301, 302):
        twice = [BaseCommand(type=BaseCommand.MESSAGE), BaseCommand(type=BaseCommand.SEND_RECEIPT)]
        twice[0].message.consumer_id = 1
        twice[1].send_receipt.producer_id = 1
        twice[1].send_receipt.sequence_id = entry_id
        for command, field in zip(twice, (b"\x12", b"\x1a"), strict=True):
            body = command.message if command.HasField("message") else command.send_receipt
            place = b"\x08\x07\x10" + varint(entry_id)
            encoded = body.SerializePartialToString() + field + varint(len(place)) + place
            encoded += field + b"\x05\x08\x07\x10\x80\x05"
            inner = b"\x08" + varint(command.type) + varint(command.type << 3 | 2)
            inner += varint(len(encoded)) + encoded
            payload = b"abc" if command.HasField("message") else b""
            frames.append(struct.pack(">II", len(inner) + 4 + len(payload), len(inner)))
            frames[-1] += inner + payload
    for several in (frames[::2], frames[1::2], frames):
        told = read(ArrivalReader(), [b"".join(several)])
        assert told == read(FrameReader(), [b"".join(several)])
        assert len(told) == len(several)
