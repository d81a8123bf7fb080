"""ACKs that are cut by hand say what protobuf finds in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.acks import (
    ACK_BYTES_MIN,
    ACK_IDS_MAX,
    AckIds,
    ack_of_run,
    cut_ack,
    ids_of_run,
)
from geminga_protocol.commands import consuming
from geminga_protocol.encode import individual_acks
from geminga_protocol.frames import BROKEN, Frame, FrameReader
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandAck

_ACK = BaseCommand.Type.ACK
_ENTRIES = st.sampled_from([0, 100, 127, 128, 16_300, 16_383, 16_384, 2_097_100, (1 << 28) - 20])
_NUMBERS = st.sampled_from([0, 1, 127, 128, 1 << 20, 1 << 40, (1 << 63) - 1])


def ack_frame(consumer_id: int, ledger_id: int, entry_ids: list[int]) -> bytes:
    return individual_acks(consumer_id, [(ledger_id, each, ()) for each in entry_ids])


def said(frame: Frame) -> tuple[int, list[tuple[int, int]]]:
    """Consumer and ids of a plain individual ACK."""
    if (run := frame.acks) is not None:
        ids = [(run.ledger_id, run.first_entry_id + n) for n in range(run.entries)]
        return run.consumer_id, ids
    command = frame.command.ack
    assert command == CommandAck(
        consumer_id=command.consumer_id, ack_type=0, message_id=command.message_id
    )
    return command.consumer_id, [(each.ledgerId, each.entryId) for each in command.message_id]


@given(_NUMBERS, _NUMBERS, _ENTRIES, st.integers(0, 20), st.integers(1, 300))
def test_ids_of_a_run_are_those_of_one_after_the_other(
    consumer_id: int, ledger_id: int, base: int, more: int, count: int
) -> None:
    first = base + more
    entry_ids = list(range(first, first + count))
    data = ack_frame(consumer_id, ledger_id, entry_ids)
    assert data.endswith(ids_of_run(ledger_id, first, count))
    assert ack_of_run(consumer_id, ledger_id, first, count) == data
    found = cut_ack(data, 8, len(data))
    if len({len(ids_of_run(ledger_id, each, 1)) for each in entry_ids}) == 1:
        assert found == AckIds(consumer_id, ledger_id, first, count)
    else:
        assert found is None, "ids of several lengths are left to the parser"


@given(
    _NUMBERS,
    _NUMBERS,
    _ENTRIES,
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=2),
    st.integers(1, 1 << 30),
)
def test_changed_bytes_are_taken_as_protobuf_takes_them(
    consumer_id: int,
    ledger_id: int,
    first: int,
    count: int,
    changes: list[tuple[int, int]],
    split: int,
) -> None:
    made = bytearray(ack_frame(consumer_id, ledger_id, list(range(first, first + count))))
    for place, byte in changes:
        made[8 + place % (len(made) - 8)] = byte
    data = bytes(made)
    frames = []
    for joins in (True, False):
        reader = FrameReader(joins=joins)
        at = split % len(data)
        frames.append(reader.feed(data[:at]) + reader.feed(data[at:]))
    [[cut], [parsed]] = frames
    if cut.acks is None:
        assert (cut.type, cut.command) == (parsed.type, parsed.command)
    else:
        assert parsed.type == _ACK != BROKEN
        assert said(cut) == said(parsed)


def test_runs_come_cut_and_all_else_parsed_in_order() -> None:
    run = ack_frame(1, 5, list(range(300, 400)))
    short = ack_frame(2, 5, [300, 301])
    gap = ack_frame(3, 5, [*range(300, 350), *range(351, 400)])
    back = ack_frame(4, 5, list(range(400, 300, -1)))
    asked = consuming.ack(5, [MessageId(5, n) for n in range(300, 400)], request_id=9)
    upto = consuming.ack(6, [MessageId(5, n) for n in range(300, 400)], cumulative=True)
    parts = individual_acks(7, [(5, n, (3,)) for n in range(300, 400)])
    longest = ack_frame(8, 5, list(range(300, 300 + ACK_IDS_MAX)))
    longer = ack_frame(9, 5, list(range(300, 301 + ACK_IDS_MAX)))
    assert len(short) < ACK_BYTES_MIN
    each = [run, short, gap, back, asked, upto, parts, longest, longer, run]
    frames = FrameReader(joins=True).feed(b"".join(each))
    assert [frame.type for frame in frames] == [_ACK] * len(each)
    cut = [number for number, frame in enumerate(frames) if frame.acks is not None]
    assert cut == [0, 7, 9]
    assert frames[0].acks == frames[9].acks == AckIds(1, 5, 300, 100)
    assert frames[7].acks == AckIds(8, 5, 300, ACK_IDS_MAX)
    assert [frames[n].command.ack.consumer_id for n in (1, 2, 3, 4, 5, 6, 8)] == [
        2, 3, 4, 5, 6, 7, 9,
    ]  # fmt: skip
    assert all(frame.acks is None for frame in FrameReader().feed(b"".join(each)))


@pytest.mark.parametrize("size", range(8, 60))
def test_commands_that_end_early_are_left_to_the_parser(size: int) -> None:
    data = ack_frame(300, 70_000, list(range(20_000, 20_100)))[:size]
    assert cut_ack(data, 8, len(data)) is None
