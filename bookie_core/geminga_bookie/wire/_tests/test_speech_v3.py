"""Requests cut by their shape are those that are parsed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie._tests.support import packets
from geminga_bookie.wire.speech import Add, Aside, Read
from geminga_bookie.wire.speech_v3 import SpeechV3
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.framing import FrameCutter, WireError

RUN = st.tuples(
    st.sampled_from([7, 7, 7, 8, 300]),
    st.one_of(st.integers(0, 400), st.integers(0, 1 << 60)),
    st.sampled_from([1, 2, 5, 130]),
    st.sampled_from([0, 1, 100, 130]),
    st.sampled_from([b"k" * 20, b"l" * 20, b"k"]),
    st.booleans(),
    st.sampled_from([0, 100]),
    st.sampled_from([0, 1]),
    st.integers(0, 1 << 44),
)


def said(requests: list[Add | Read | Aside]) -> list[object]:
    return [each if not isinstance(each, Aside) else "aside" for each in requests]


def stream_of(runs: list[tuple[int, int, int, int, bytes, bool, int, int, int]]) -> bytes:
    """Runs of adds; a run that begins where the one before ended is its neighbour."""
    made = b""
    for ledger, first, count, size, key, recovery, priority, flags, txn in runs:
        entries = packets(ledger, range(first, first + count), size)
        made += b"".join(
            v3.encode_adds(
                ledger,
                key,
                first,
                entries,
                txn,
                recovery=recovery,
                priority=priority,
                write_flags=flags,
            )
        )
    return made


def by_parsing(stream: bytes) -> list[object]:
    """Each frame alone, by a new reader, then joined."""
    buffer, bounds = FrameCutter(1 << 30).feed(stream)
    found: list[Add | Read | Aside] = []
    for at in range(len(bounds) - 1):
        ((one,), _) = SpeechV3().requests(buffer, bounds[at : at + 2])
        last = found[-1] if found else None
        if (
            isinstance(one, Add)
            and isinstance(last, Add)
            and last.takes(one.ledger_id, one.master_key, one.first_entry_id, one.recovery)
        ):
            last.packets += one.packets
            last.tags += one.tags
        else:
            found.append(one)
    return said(found)


@given(st.lists(RUN, max_size=4))
@pytest.mark.slow
def test_adds(runs: list[tuple[int, int, int, int, bytes, bool, int, int, int]]) -> None:
    stream = stream_of(runs)
    buffer, bounds = FrameCutter(1 << 30).feed(stream)
    assert said(list(SpeechV3().requests(buffer, bounds)[0])) == by_parsing(stream)


def test_an_add_without_the_flag_of_those_before() -> None:
    """Its frame has the same size: write flags stand where the flag of recovery stood."""
    runs = [(7, 0, 3, 100, b"k", True, 0, 0, 1), (7, 3, 2, 100, b"k", False, 0, 128, 4)]
    stream = stream_of(runs)
    buffer, bounds = FrameCutter(1 << 30).feed(stream)
    assert len({stop - start for start, stop in pairwise(bounds)}) == 1
    found = said(list(SpeechV3().requests(buffer, bounds)[0]))
    assert found == by_parsing(stream)
    assert len(found) == 2


@given(RUN, st.integers(0, 1 << 30), st.integers(0, 255), st.integers(1, 10))
def test_adds_with_wrong_bytes(
    run: tuple[int, int, int, int, bytes, bool, int, int, int], at: int, byte: int, reads: int
) -> None:
    """Also cut at any frame: the shape lives over reads."""
    stream = bytearray(stream_of([run]))
    stream[at % len(stream)] = byte
    cutter = FrameCutter(1 << 30)
    buffer, bounds = cutter.feed(bytes(stream))
    try:
        expected = by_parsing(bytes(stream))
    except WireError:
        return
    speech = SpeechV3()
    found: list[Add | Read | Aside] = []
    step = max(len(bounds) // reads, 1)
    for begin in range(0, len(bounds) - 1, step):
        for each in speech.requests(buffer, bounds[begin : begin + step + 1])[0]:
            last = found[-1] if found else None
            if (
                isinstance(each, Add)
                and isinstance(last, Add)
                and last.takes(each.ledger_id, each.master_key, each.first_entry_id, each.recovery)
            ):
                last.packets += each.packets
                last.tags += each.tags
            else:
                found.append(each)
    assert said(found) == expected
