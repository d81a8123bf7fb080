"""Frames recorded between Apache's bookie client and bookie come out of our codec unchanged."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.bookkeeper.availability import decode_entries, encode_entries
from geminga_protocol.bookkeeper.framing import FrameCutter
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    READ_ENTRY,
    AddRequest,
    OperationType,
    Response,
)

GOLDEN = Path(__file__).parent / "golden_bookie"
SIDES = ("client", "bookie")


@cache
def streams_of(case: str, side: str) -> list[list[bytes]]:
    """The frames of one side, by connections."""
    document = json.loads((GOLDEN / f"{case}.json").read_text())
    return [
        [bytes.fromhex(frame["hex"]) for frame in connection if frame["from"] == side]
        for connection in document["connections"]
    ]


def is_v3(frame: bytes) -> bool:
    return frame[4] == 0x0A


def all_of(case: str, side: str, version: int) -> list[bytes]:
    """All frames of that version; the client of v2 opens connections of v3 for what v2 has not."""
    found = [frame for frames in streams_of(case, side) for frame in frames]
    return [frame for frame in found if is_v3(frame) == (version == 3)]


def bounds_of(frame: bytes) -> list[int]:
    return [0, len(frame)]


def test_what_was_recorded() -> None:
    """Each operation, so that the tests below can fail."""
    operations = {
        OperationType.Name(request.header.operation)
        for case in ("v3", "v3_list")
        for frame in all_of(case, "client", 3)
        for request in v3.decode_requests(frame, bounds_of(frame))
    }
    assert operations == set(OperationType.keys()) - {
        "RANGE_READ_ENTRY", "RANGE_ADD_ENTRY", "AUTH", "START_TLS", "BATCH_READ_ENTRY",
    }  # fmt: skip
    kinds = {frame[5] for frame in all_of("v2", "client", 2)}
    assert kinds == {v2.ADD, v2.READ, v2.READ_MANY}


@pytest.mark.parametrize("case", ["v3", "v2", "v3_list"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
def test_streams_are_cut_into_the_recorded_frames(case: str, chunk_bytes: int) -> None:
    for side in SIDES:
        for frames in streams_of(case, side):
            stream = b"".join(frames)
            cutter = FrameCutter()
            found: list[bytes] = []
            for at in range(0, len(stream), chunk_bytes):
                buffer, bounds = cutter.feed(stream[at : at + chunk_bytes])
                found += [buffer[start:stop] for start, stop in pairwise(bounds)]
            assert found == frames


@pytest.mark.parametrize("case", ["v3", "v2", "v3_list"])
def test_v3_messages_are_encoded_to_the_same_bytes(case: str) -> None:
    for frame in all_of(case, "client", 3):
        (request,) = v3.decode_requests(frame, bounds_of(frame))
        assert v3.frame(request) == frame
        asked, txn, priority = request.addRequest, request.header.txnId, request.header.priority
        if request.header.operation == ADD_ENTRY:
            made = v3.encode_adds(
                asked.ledgerId, asked.masterKey, asked.entryId, [asked.body], txn,
                recovery=asked.flag == AddRequest.RECOVERY_ADD and asked.HasField("flag"),
                write_flags=asked.writeFlags, priority=priority,
            )  # fmt: skip
            assert b"".join(made) == frame
        read = request.readRequest
        is_plain = not priority and not read.HasField("flag") and not read.HasField("previousLAC")
        if request.header.operation == READ_ENTRY and is_plain:
            assert v3.encode_reads(read.ledgerId, read.entryId, 1, txn) == frame


@pytest.mark.parametrize("case", ["v3", "v2", "v3_list"])
def test_v3_answers_are_encoded_to_the_same_bytes(case: str) -> None:
    entries_of = {
        request.header.txnId: (request.addRequest.ledgerId, request.addRequest.entryId)
        for frame in all_of(case, "client", 3)
        for request in v3.decode_requests(frame, bounds_of(frame))
    }
    for frame in all_of(case, "bookie", 3):
        (answer,) = v3.decode_answers(frame, bounds_of(frame))
        if isinstance(answer, Response):
            assert v3.frame(answer) == frame
        else:
            ledger_id, entry_id = entries_of[answer.first_txn]
            assert v3.encode_add_answers(ledger_id, [entry_id], [answer.first_txn]) == frame


def test_v2_requests_are_encoded_to_the_same_bytes() -> None:
    for frame in all_of("v2", "client", 2):
        (each,) = v2.decode_requests(frame, bounds_of(frame))
        assert each.version == v2.VERSION
        if each.operation == v2.ADD:
            made = b"".join(v2.encode_adds(each.master_key, [each.packet], flags=each.flags))
        elif each.operation == v2.READ:
            made = v2.encode_read(
                each.ledger_id, each.entry_id, flags=each.flags, master_key=each.master_key
            )
        else:
            made = v2.encode_read_many(
                each.ledger_id, each.entry_id, each.request_id, each.entries_max, each.bytes_max
            )
        assert made == frame


def test_v2_answers_are_encoded_to_the_same_bytes() -> None:
    for frame in all_of("v2", "bookie", 2):
        (each,) = v2.decode_answers(frame, bounds_of(frame))
        ids = (each.ledger_id, each.entry_id)
        if each.operation == v2.READ_MANY:
            made = b"".join(
                v2.encode_read_many_answer(each.code, *ids, each.request_id, each.packets)
            )
        else:
            made = b"".join(v2.encode_answer(each.operation, each.code, *ids, *each.packets))
        if each.operation == v2.ADD:
            assert v2.encode_add_answers(each.ledger_id, [each.entry_id], each.code) == frame
        assert made == frame


def test_lists_of_entries() -> None:
    """Apache's bookie gives each run of entries a group of its own; ours joins equal ones."""
    lists = [
        answer.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger
        for frame in all_of("v3_list", "bookie", 3)
        for answer in v3.decode_answers(frame, bounds_of(frame))
        if isinstance(answer, Response) and answer.HasField("getListOfEntriesOfLedgerResponse")
    ]
    (data,) = [each for each in lists if each]
    entries = decode_entries(data)
    assert entries == [0, 1, 3, 4, 6, 7, 9]
    ours = encode_entries(entries)
    assert len(ours) < len(data)
    assert decode_entries(ours) == entries
    first_run = encode_entries(entries[:2])
    assert first_run[64:] == data[64:88]
