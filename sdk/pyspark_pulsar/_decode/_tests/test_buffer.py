"""Numbers and spans of many payloads at once against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._decode import _buffer as faults
from pyspark_pulsar._decode._buffer import Cursor

LONGS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 63).flatmap(lambda n: st.sampled_from([(1 << n) - 1, -(1 << n)])),
)


def written(number: int) -> bytes:
    """As Avro writes a long."""
    left = (number << 1) ^ (number >> 63)
    left &= (1 << 64) - 1
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


@settings(deadline=None)
@given(st.lists(st.tuples(LONGS, LONGS), min_size=1))
def test_longs(pairs: list[tuple[int, int]]) -> None:
    at = Cursor.over([written(one) + written(other) for one, other in pairs])
    assert at.longs().tolist() == [one for one, _ in pairs]
    assert at.longs().tolist() == [other for _, other in pairs]
    at.finish()
    assert not at.fault.any()


@settings(deadline=None)
@given(st.lists(st.integers(0, 127), min_size=1))
def test_short_longs(bytes_: list[int]) -> None:
    at = Cursor.over([bytes([each]) for each in bytes_])
    assert at.longs().tolist() == [(each >> 1) ^ -(each & 1) for each in bytes_]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=1))
def test_any_bytes_stay_in_the_buffer(payloads: list[bytes]) -> None:
    at = Cursor.over(payloads)
    for _ in range(3):
        at.longs()
        at.fixed("<f8")
        start, stop = at.spans()
        assert (start <= stop).all()
        assert (stop <= at.end).all()
        assert (stop[:-1] <= start[1:]).all()
        assert len(at.buffer.texts(start, stop)) == len(payloads)
    at.finish()
    for number, payload in enumerate(payloads):
        if len(payload) < 27:
            assert at.fault[number]


def test_numbers_that_are_too_long() -> None:
    most = written(-(1 << 63))
    assert len(most) == 10
    at = Cursor.over([most, b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x00", b"\x80" * 8 + b"\x00"])
    assert at.longs()[0] == -(1 << 63)
    assert at.fault.tolist() == [0, faults.TOO_LARGE, faults.TOO_LARGE, 0]


def test_whole_numbers_of_32_bits() -> None:
    at = Cursor.over([written(each) for each in (-(1 << 31), (1 << 31) - 1, 1 << 31)])
    at.ints()
    assert at.fault.tolist() == [0, 0, faults.TOO_LARGE]


def test_the_first_fault_is_reported() -> None:
    at = Cursor.over([b"\x01", b"\x00"])
    at.note(np.array([True, False]), faults.NO_TEXT)
    at.note(np.array([True, True]), faults.NO_BRANCH)
    assert at.fault.tolist() == [faults.NO_TEXT, faults.NO_BRANCH]
