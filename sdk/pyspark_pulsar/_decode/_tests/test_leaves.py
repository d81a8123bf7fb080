"""Dates, times and decimals of plain numbers and bytes."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._decode._buffer import Buffer
from pyspark_pulsar._decode._leaves import decimal_of, of_decimals, of_numbers, spread, widened
from pyspark_pulsar._decode._shapes import Kind, Leaf


def padded(number: int, spare: int) -> bytes:
    """Big-endian, with bytes before it that say nothing."""
    size = (number.bit_length() + 8) // 8 + spare
    return number.to_bytes(size, "big", signed=True)


NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40),
    st.integers(0, 40).flatmap(lambda n: st.sampled_from([10**n - 1, 10**n, -(10**n), 1 - 10**n])),
    st.integers(0, 136).flatmap(lambda n: st.sampled_from([(1 << n) - 1, -(1 << n)])),
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, st.sampled_from([0, 0, 1, 20])), min_size=1),
    st.sampled_from([(1, 0), (9, 2), (37, 5), (38, 0), (38, 38)]),
)
def test_decimals(numbers: list[tuple[int, int]], digits: tuple[int, int]) -> None:
    leaf = Leaf(Kind.DECIMAL, precision=digits[0], scale=digits[1])
    payloads = [padded(number, spare) for number, spare in numbers]
    stop = np.cumsum(list(map(len, payloads)))
    start = stop - list(map(len, payloads))
    found, wrong = of_decimals(leaf, Buffer(payloads, leaves_some=False), start, stop)
    assert found.type == pa.decimal128(*digits)
    for row, (number, _) in enumerate(numbers):
        fits = abs(number) < 10 ** digits[0]
        assert fits == (wrong is None or not wrong[row])
        if fits:
            assert found[row].as_py() == decimal_of(leaf, payloads[row])
            assert int(found[row].as_py().scaleb(digits[1])) == number or digits[0] > 28
        else:
            with pytest.raises(ValueError, match="digits"):
                decimal_of(leaf, payloads[row])


def test_no_bytes_are_zero() -> None:
    leaf = Leaf(Kind.DECIMAL, precision=9, scale=2)
    nowhere = np.zeros(1, np.int64)
    found, _ = of_decimals(leaf, Buffer([b"\xff"], leaves_some=False), nowhere, nowhere)
    assert found.to_pylist() == [Decimal("0.00")] == [decimal_of(leaf, b"")]


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (Kind.DATE, datetime.date.min, datetime.date.max),
        (Kind.TIME_MILLIS, 0, 86_399_999_000),
        (Kind.TIME_MICROS, 0, 86_399_999_999),
        (Kind.LOCAL_TIMESTAMP_MICROS, datetime.datetime.min, datetime.datetime.max),
        (
            Kind.LOCAL_TIMESTAMP_MILLIS,
            datetime.datetime.min,
            datetime.datetime.max.replace(microsecond=999_000),
        ),
    ],
)
def test_ranges(kind: Kind, least: object, most: object) -> None:
    leaf = Leaf(kind)

    def is_wrong(number: int) -> bool:
        return of_numbers(leaf, np.array([number]))[1] is not None

    low, high = _edge(is_wrong, -(1 << 60)), _edge(is_wrong, 1 << 60)
    found, wrong = of_numbers(leaf, np.array([low, high, high + 1, low - 1]))
    assert found.to_pylist()[:2] == [least, most]
    assert wrong is not None
    assert wrong.tolist() == [False, False, True, True]


def _edge(is_wrong: object, beyond: int) -> int:
    """The last number towards `beyond` that is right, 1 being so."""
    assert callable(is_wrong)
    good, bad = 1, beyond
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if is_wrong(middle) else (middle, bad)
    return good


def test_spread() -> None:
    array = pa.array(["a", "b"])
    assert spread(array, np.array([3, 1]), 4).to_pylist() == [None, "b", None, "a"]
    assert spread(pa.array([], pa.int8()), np.array([], np.int64), 2).to_pylist() == [None, None]


def test_invalid_utf8_keeps_its_row() -> None:
    found, wrong = widened(pa.array([b"a", None, b"\xff"]), pa.string())
    assert found.to_pylist() == ["a", None, ""]
    assert wrong is not None
    assert wrong.tolist() == [False, False, True]
