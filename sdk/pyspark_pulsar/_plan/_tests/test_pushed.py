"""Filters: all matching messages are read, and as few others as possible."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_pulsar._plan._filters import IDS_MAX, Limits, Narrowing
from pyspark_pulsar._plan._pushed import narrow
from pyspark_pulsar._positions import Position, TopicRange

TOPICS = ("persistent://public/default/a", "persistent://public/default/b")
UTC = datetime.UTC
KINDS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def time_of(ms: int, us: int = 0) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, UTC) + datetime.timedelta(
        milliseconds=ms, microseconds=us
    )


Message = dict[str, object]


def message(topic: int, ledger: int, entry: int, index: int, ms: int) -> Message:
    tail = f":{index}" if index >= 0 else ""
    return {
        "__topic": TOPICS[topic],
        "__partition": topic,
        "__messageId": f"{ledger}:{entry}{tail}",
        "__ledgerId": ledger,
        "__entryId": entry,
        "__publishTime": time_of(ms),
        "__key": f"k{entry}",
        "place": Position(ledger, entry, index),
        "ms": ms,
    }


MESSAGES = [
    message(topic, ledger, entry, index, 100 * ledger + 10 * entry + topic)
    for topic in (0, 1)
    for ledger in (2, 5)
    for entry in (0, 1, 2)
    for index in ((-1,) if entry == 1 else (0, 1, 2))
]


def holds(filter_: Filter, row: Message) -> bool:
    """Spark's own meaning, on columns that aren't null."""
    if isinstance(filter_, Not):
        return not holds(filter_.child, row)
    value = row.get(filter_.attribute[0])
    match filter_:
        case EqualTo(_, other) | EqualNullSafe(_, other):
            return bool(value == other)
        case In(_, others):
            return value in others
        case GreaterThan(_, other):
            return bool(value > other)
        case GreaterThanOrEqual(_, other):
            return bool(value >= other)
        case LessThan(_, other):
            return bool(value < other)
        case LessThanOrEqual(_, other):
            return bool(value <= other)
        case StringStartsWith(_, other):
            return str(value).startswith(other)
        case IsNotNull(_):
            return value is not None
        case IsNull(_):
            return value is None
    raise AssertionError(filter_)


def _comparisons() -> st.SearchStrategy[Filter]:
    numbers = st.integers(-2, 7)
    times = st.builds(time_of, st.integers(190, 540), st.integers(0, 999))
    ids = st.sampled_from([str(row["__messageId"]) for row in MESSAGES] + ["2:0", "9:9", "no id"])
    texts = {
        "__topic": st.sampled_from([*TOPICS, "persistent://public/default/c"]),
        "__messageId": ids,
        "__key": st.sampled_from(["k0", "k1", "k9"]),
    }
    values: dict[str, st.SearchStrategy[object]] = {
        "__partition": numbers,
        "__ledgerId": numbers,
        "__entryId": numbers,
        "__publishTime": times,
        **texts,
    }
    each: list[st.SearchStrategy[Filter]] = []
    for column, of in values.items():
        each += [st.builds(kind, st.just((column,)), of) for kind in KINDS]
        some = st.lists(of, max_size=4).map(tuple)
        each.append(st.builds(In, st.just((column,)), some))
    each += [
        st.builds(
            StringStartsWith, st.just(("__topic",)), st.just("persistent://public/default/a")
        ),
        st.builds(IsNotNull, st.sampled_from([("__topic",), ("__key",)])),
        st.builds(IsNull, st.sampled_from([("__topic",), ("__key",)])),
    ]
    plain = st.one_of(each)
    return st.one_of(plain, plain, plain.map(Not))


def _is_read(found: Narrowing, row: Message) -> int:
    """How many of the remaining ranges contain the message."""
    topic, partition, place = str(row["__topic"]), row["__partition"], row["place"]
    assert isinstance(partition, int)
    assert isinstance(place, Position)
    assert isinstance(row["ms"], int)
    if not found.allows(topic, partition) or not found.publish_ms.allow(row["ms"]):
        return 0
    if found.keys is not None and row["__key"] not in found.keys:
        return 0
    whole = TopicRange(topic, partition, Position(0, 0), Position(9, 9))
    index = (*place[:2], max(place.batch_index, 0))
    return sum(
        tuple(part.start) <= index and tuple(place) <= part.stop.reach
        for part in found.applied(whole)
    )


@settings(deadline=None)
@given(st.lists(_comparisons(), max_size=4))
def test_matching_messages_are_read_once(filters: list[Filter]) -> None:
    found, left = narrow(filters)
    served = [each for each in filters if not any(each is other for other in left)]
    for row in MESSAGES:
        times = _is_read(found, row)
        assert times <= 1
        if all(holds(each, row) for each in filters):
            assert times == 1, row
        if times:
            # Spark won't look at these again.
            assert all(holds(each, row) for each in served)


TOPIC = ("__topic",)
TIME = ("__publishTime",)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ([EqualTo(TOPIC, TOPICS[0])], 14),
        ([EqualTo(("__partition",), 1)], 14),
        ([GreaterThan(("__partition",), 1)], 0),
        ([EqualTo(("__messageId",), "2:0:1")], 2),
        ([In(("__messageId",), ("2:0:1", "2:0:1", "5:1", "nothing"))], 4),
        ([EqualTo(("__ledgerId",), 5)], 14),
        ([EqualTo(("__ledgerId",), 5), LessThan(("__entryId",), 1)], 6),
        ([LessThan(("__entryId",), 1)], 28),
        ([GreaterThanOrEqual(TIME, time_of(500)), LessThan(TIME, time_of(510))], 6),
        ([EqualTo(("__key",), "k1")], 4),
        ([EqualTo(TOPIC, TOPICS[0]), EqualTo(TOPIC, TOPICS[1])], 0),
        ([Not(EqualTo(TOPIC, TOPICS[0]))], 28),
        ([EqualTo(("value", "a"), 1)], 28),
    ],
)
def test_other_messages_are_not_read(filters: list[Filter], count: int) -> None:
    found, _ = narrow(filters)
    assert sum(_is_read(found, row) for row in MESSAGES) == count


def test_only_exactly_applied_filters_are_not_returned() -> None:
    served = [EqualTo(TOPIC, "a"), In(("__partition",), (1, None)), IsNotNull(("__messageId",))]
    rest = [
        EqualTo(("__key",), "k"),
        GreaterThan(TIME, time_of(1)),
        IsNotNull(("__key",)),
        IsNull(TOPIC),
    ]
    assert narrow([*served, *rest])[1] == rest


def test_publish_times_are_cut_at_whole_milliseconds() -> None:
    for us in (0, 1, 999):
        here = time_of(77, us)
        later, earlier = 78 if us else 77, 77
        assert narrow([GreaterThanOrEqual(TIME, here)])[0].publish_ms == Limits(least=later)
        assert narrow([GreaterThan(TIME, here)])[0].publish_ms == Limits(least=78)
        assert narrow([LessThanOrEqual(TIME, here)])[0].publish_ms == Limits(most=earlier)
        assert narrow([LessThan(TIME, here)])[0].publish_ms == Limits(most=77 if us else 76)


def test_times_without_zone_do_not_narrow() -> None:
    found, left = narrow([EqualTo(TIME, datetime.datetime(2026, 1, 1))])
    assert found == Narrowing()
    assert len(left) == 1


def test_times_beyond_timestamps_are_read() -> None:
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    limits = narrow([GreaterThanOrEqual(TIME, last)])[0].publish_ms
    assert limits.allow(1 << 62)
    assert not limits.allow(0)


def test_many_ids_are_read_as_one_range() -> None:
    ids = tuple(f"3:{entry}" for entry in range(0, 3 * IDS_MAX, 2))
    found, _ = narrow([In(("__messageId",), ids)])
    whole = TopicRange(TOPICS[0], 0, Position(3, 10), Position(4, 0))
    assert found.applied(whole) == [
        TopicRange(TOPICS[0], 0, Position(3, 10), Position(3, 3 * IDS_MAX - 2))
    ]


def test_ids_of_one_entry_are_read_once() -> None:
    found, _ = narrow([In(("__messageId",), ("3:1:2", "3:1", "3:1:0"))])
    whole = TopicRange(TOPICS[0], 0, Position(3, 0), Position(4, 0))
    assert found.applied(whole) == [TopicRange(TOPICS[0], 0, Position(3, 1), Position(3, 1))]
