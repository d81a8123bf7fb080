"""Converts Spark's filters to a narrowing of the read (spec SP-04). Pure. PySpark has
filters from 4.1 on: import this only there.

Only certain cases narrow: an unsupported filter narrows nothing, and Spark applies all filters
again, except those that are applied exactly here.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_pulsar._options._bounds import TIME_MS_MAX
from pyspark_pulsar._plan._filters import Limits, Narrowing
from pyspark_pulsar._positions import Position

NEVER_NULL = frozenset(
    {"__topic", "__partition", "__messageId", "__messageIdBytes", "__ledgerId", "__entryId",
     "__publishTime"}
)  # fmt: skip
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_Comparison = (
    EqualTo | EqualNullSafe | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
)


def narrow(filters: Sequence[Filter]) -> tuple[Narrowing, list[Filter]]:
    """The narrowing by `filters`, and the filters that Spark must apply again."""
    found = Narrowing()
    left: list[Filter] = []
    for each in filters:
        found, is_served = _narrowed(found, each)
        if not is_served:
            left.append(each)
    return found, left


def _narrowed(found: Narrowing, filter_: Filter) -> tuple[Narrowing, bool]:
    """Narrowed by one more filter, and whether the filter is applied exactly."""
    if isinstance(filter_, IsNotNull):
        return found, len(filter_.attribute) == 1 and filter_.attribute[0] in NEVER_NULL
    if not isinstance(filter_, _Comparison) or len(filter_.attribute) != 1:
        return found, False
    column = filter_.attribute[0]
    if column in ("__topic", "__key", "__messageId"):
        texts = _texts(filter_)
        return (found, False) if texts is None else _narrowed_by_text(found, column, texts)
    if column == "__publishTime":
        times = _times(filter_)
        if times is None:
            return found, False
        return replace(found, publish_ms=found.publish_ms.met(times)), False
    if column in ("__partition", "__ledgerId", "__entryId"):
        numbers = _numbers(filter_)
        return (found, False) if numbers is None else _narrowed_by_number(found, column, numbers)
    return found, False


def _narrowed_by_text(
    found: Narrowing, column: str, texts: frozenset[str]
) -> tuple[Narrowing, bool]:
    if column == "__topic":
        topics = texts if found.topics is None else found.topics & texts
        return replace(found, topics=topics), True
    if column == "__key":
        keys = texts if found.keys is None else found.keys & texts
        return replace(found, keys=keys), False
    ids = _ids(texts)
    return replace(found, ids=ids if found.ids is None else found.ids & ids), False


def _narrowed_by_number(found: Narrowing, column: str, numbers: Limits) -> tuple[Narrowing, bool]:
    if column == "__partition":
        return replace(found, partitions=found.partitions.met(numbers)), True
    if column == "__ledgerId":
        return replace(found, ledgers=found.ledgers.met(numbers)), False
    return replace(found, entries=found.entries.met(numbers)), False


def _texts(filter_: _Comparison) -> frozenset[str] | None:
    """The strings of which a column must equal one; None for other filters."""
    if isinstance(filter_, In):
        values = tuple(each for each in filter_.value if each is not None)
    elif isinstance(filter_, EqualTo | EqualNullSafe):
        values = (filter_.value,)
    else:
        return None
    if not all(isinstance(each, str) for each in values):
        return None
    return frozenset(values)


def _ids(texts: frozenset[str]) -> frozenset[Position]:
    """The positions of values of `__messageId`; invalid values match no message."""
    found = set()
    for text in texts:
        try:
            found.add(Position.parse(text))
        except ValueError:
            continue
    return frozenset(found)


def _numbers(filter_: _Comparison) -> Limits | None:
    """The integers that a column may have."""
    if isinstance(filter_, In):
        values = [each for each in filter_.value if each is not None]
        if not all(_is_whole(each) for each in values):
            return None
        return Limits().met(Limits(among=frozenset(values)))
    return _interval(filter_, filter_.value) if _is_whole(filter_.value) else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _interval(filter_: _Comparison, value: int) -> Limits:
    if isinstance(filter_, GreaterThan):
        return Limits(least=value + 1)
    if isinstance(filter_, GreaterThanOrEqual):
        return Limits(least=value)
    if isinstance(filter_, LessThan):
        return Limits(most=value - 1)
    if isinstance(filter_, LessThanOrEqual):
        return Limits(most=value)
    return Limits(least=value, most=value)


def _times(filter_: _Comparison) -> Limits | None:
    """The publish times, in ms since 1970, that a filter on timestamps of us allows."""
    if isinstance(filter_, In):
        each = [_times(EqualTo(filter_.attribute, value)) for value in filter_.value]
        known = [limits for limits in each if limits is not None]
        if len(known) < len(each) or not known:
            return None
        return Limits(min(one.least for one in known), max(one.most for one in known))
    value = filter_.value
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    exact = _interval(filter_, (value - _EPOCH) // _MICROSECOND)
    least = exact.least if exact.least == Limits().least else -(-exact.least // 1000)
    most = exact.most if exact.most == Limits().most else exact.most // 1000
    # Times later than the largest timestamp are shown as that.
    least = min(least, TIME_MS_MAX)
    return Limits(least, Limits().most if most >= TIME_MS_MAX else most)
