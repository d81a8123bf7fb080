"""A batch read that takes filters (PySpark 4.1 and newer)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan

from pyspark_pulsar._tests.broker import Broker, running_broker
from pyspark_pulsar._tests.reads import publish_readings, read, source


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


@pytest.fixture(scope="module")
def readings(broker: Broker) -> str:
    return publish_readings(broker)


FILTERS: list[tuple[list[Filter], int]] = [
    ([EqualTo(("__partition",), 1)], 1),
    ([EqualTo(("__partition",), 7)], 0),
    ([EqualTo(("__key",), "k3")], 2),
    ([EqualTo(("degrees",), 3)], 2),
    ([LessThan(("__ledgerId",), 1 << 40)], 2),
]


@pytest.mark.parametrize(("filters", "topics"), FILTERS)
@pytest.mark.slow
def test_filters_keep_matching_messages(
    broker: Broker, readings: str, filters: list[Filter], topics: int
) -> None:
    made = source(broker, readings, pushdown="true")
    rows, parts = read(made, filters=filters)
    assert len({part.topic for part in parts}) == topics
    for row in read(source(broker, readings))[0]:
        (condition,) = filters
        held = row.get(condition.attribute[0], 0)
        wanted = condition.value
        if held == wanted if isinstance(condition, EqualTo) else True:
            assert row in rows


@pytest.mark.slow
def test_ids_are_read_one_by_one(broker: Broker, readings: str) -> None:
    every, _ = read(source(broker, readings))
    ids = (str(every[10]["__messageId"]), str(every[70]["__messageId"]))
    rows, _ = read(source(broker, readings, pushdown="true"), filters=[In(("__messageId",), ids)])
    found = {(row["__messageId"], row["__topic"]) for row in rows}
    assert {row["__messageId"] for row in rows} == set(ids)
    assert (ids[0], every[10]["__topic"]) in found


@pytest.mark.slow
def test_times_narrow_only_if_the_slack_is_known(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, [b"%d" % n for n in range(30)])
    every, _ = read(source(broker, topic))
    middle = every[20]["__publishTime"]
    assert isinstance(middle, datetime)
    filters: list[Filter] = [
        GreaterThanOrEqual(("__publishTime",), middle.astimezone(UTC)),
        LessThan(("__publishTime",), middle.astimezone(UTC) + timedelta(hours=1)),
    ]
    later = [row for row in every if row["__publishTime"] >= middle]

    def starts(**slack: str) -> str:
        rows, parts = read(source(broker, topic, pushdown="true", **slack), filters=filters)
        # Times that producers' clocks made out of order would be read all the same.
        assert rows == later
        return str(parts[0].start)

    assert starts() == every[0]["__messageId"]
    assert starts(publishTimeSlackMs="0") == later[0]["__messageId"]
    assert starts(publishTimeSlackMs="1h") == every[0]["__messageId"]
    past = LessThan(("__publishTime",), datetime(1960, 1, 1, tzinfo=UTC))
    slack = {"pushdown": "true", "publishTimeSlackMs": "0"}
    assert read(source(broker, topic, **slack), filters=[past]) == ([], [])
