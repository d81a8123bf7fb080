"""Starting and ending positions, resolved for each partition and checked against its messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import geminga
from pyspark_pulsar._options import AtTime, Bound, Edge, ReadOptions, parse_read
from pyspark_pulsar._plan._ranges import RangeResolver, check_named, check_names, where_of
from pyspark_pulsar._plan._topics import expand
from pyspark_pulsar._positions import Position, TopicPartition, TopicRange
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar._tests.admin import path_of
from pyspark_pulsar._tests.broker import Broker, running_broker
from pyspark_pulsar.errors import DataLoss, InvalidOption, OffsetOutOfRange


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


@pytest.fixture(scope="module")
def kept(broker: Broker) -> tuple[str, list[Position]]:
    """A topic of 25 entries in three ledgers."""
    topic = broker.topic()
    ids = broker.publish(topic, [b"%d" % n for n in range(25)])
    return topic, [Position(each.ledger_id, each.entry_id) for each in ids]


@pytest.fixture(scope="module")
def trimmed(broker: Broker) -> tuple[str, list[Position]]:
    """A topic whose first ledgers are deleted."""
    namespace = "public/trimmed"
    broker.ask("PUT", f"namespaces/{namespace}", {})
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    broker.ask("POST", f"namespaces/{namespace}/retention", nothing)
    topic = f"persistent://{namespace}/t"
    ids = broker.publish(topic, [b"x"] * 25)
    broker.ask("DELETE", path_of(topic) + "/truncate")
    return topic, [Position(each.ledger_id, each.entry_id) for each in ids]


def resolve(broker: Broker, options: ReadOptions) -> list[TopicRange]:
    return RangeResolver(broker.client, options).ranges(expand(broker.client, options.topics))


def one(topic: str, place: object) -> str:
    return json.dumps({topic: place})


def test_all_by_default(broker: Broker, kept: tuple[str, list[Position]]) -> None:
    topic, at = kept
    assert resolve(broker, broker.options(topic)) == [TopicRange(topic, -1, at[0], at[-1])]


def test_ids_are_included_at_both_ends(broker: Broker, kept: tuple[str, list[Position]]) -> None:
    topic, at = kept
    ends = {"startingOffsets": one(topic, f"{at[3]}:1"), "endingOffsets": one(topic, str(at[12]))}
    found = resolve(broker, broker.options(topic, **ends))
    assert found == [TopicRange(topic, -1, at[3]._replace(batch_index=1), at[12])]


def test_short_names_and_the_parents_of_partitions(broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    ids = broker.publish(topic, [b"%d" % n for n in range(20)])
    last = {n: max(each for each in ids if each.partition == n) for n in (0, 1)}
    first = min(each for each in ids if each.partition == 0)
    short = topic.rpartition("/")[2]
    start = {short: "earliest", f"{short}-partition-1": list(last[1].serialize())}
    found = resolve(broker, broker.options(topic, startingOffsets=json.dumps(start)))
    ends = [Position(each.ledger_id, each.entry_id) for each in last.values()]
    assert found == [
        TopicRange(f"{topic}-partition-0", 0, Position(first.ledger_id, 0), ends[0]),
        TopicRange(f"{topic}-partition-1", 1, ends[1], ends[1]),
    ]


@pytest.mark.slow
def test_times(broker: Broker, kept: tuple[str, list[Position]]) -> None:
    topic, at = kept
    with broker.client.create_reader(topic, geminga.EARLIEST) as reader:
        times = [reader.read_next(5.0).publish_time_ms for _ in at]
    middle = times[14]
    first = at[times.index(middle)]
    later = broker.options(topic, startingTimestamp=str(middle))
    assert resolve(broker, later) == [TopicRange(topic, -1, first, at[-1])]
    earlier = broker.options(topic, endingTimestamp=str(middle))
    assert resolve(broker, earlier) == [TopicRange(topic, -1, at[0], first.before)]
    same = broker.options(topic, startingTime=str(middle), endingTime=str(middle))
    assert resolve(broker, same) == []
    assert resolve(broker, broker.options(topic, startingTime=str(times[-1] + 1))) == []
    whole = broker.options(topic, startingTime="0", endingTime=str(times[-1] + 1))
    assert resolve(broker, whole) == [TopicRange(topic, -1, at[0], at[-1])]


def test_the_next_position_is_valid(broker: Broker, kept: tuple[str, list[Position]]) -> None:
    topic, at = kept
    after = broker.options(topic, startingOffsets=one(topic, str(at[-1].after)))
    assert resolve(broker, after) == []
    # After a ledger that isn't the last comes the next one.
    first = [each for each in at if each.ledger_id == at[0].ledger_id]
    assert len(first) < len(at)
    gap = first[-1].after
    found = resolve(broker, broker.options(topic, startingOffsets=one(topic, str(gap))))
    assert found == [TopicRange(topic, -1, gap, at[-1])]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_ids_after_the_end(
    broker: Broker,
    kept: tuple[str, list[Position]],
    option: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, at = kept
    place = Position(at[-1].ledger_id, at[-1].entry_id + 2)
    with pytest.raises(OffsetOutOfRange) as caught:
        resolve(broker, broker.options(topic, **{option: one(topic, str(place))}))
    assert caught.value.topic == topic
    assert option in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    lenient = broker.options(topic, failOnDataLoss="false", **{option: one(topic, str(place))})
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        found = resolve(broker, lenient)
    assert found == ([] if option == "startingOffsets" else [TopicRange(topic, -1, at[0], at[-1])])
    assert topic in caplog.text


def test_deleted_ids(
    broker: Broker, trimmed: tuple[str, list[Position]], caplog: pytest.LogCaptureFixture
) -> None:
    topic, at = trimmed
    broker.publish(topic, [b"y"] * 3)
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OffsetOutOfRange) as caught:
            resolve(broker, broker.options(topic, **{option: one(topic, str(at[2]))}))
        assert caught.value.topic == topic
        assert f"{option}: {at[2]}" in str(caught.value)
    lenient = broker.options(topic, failOnDataLoss="false", startingOffsets=one(topic, str(at[2])))
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        (found,) = resolve(broker, lenient)
    assert found.start.ledger_id > at[2].ledger_id
    assert "before the first remaining message" in caplog.text
    lenient = broker.options(topic, failOnDataLoss="false", endingOffsets=one(topic, str(at[2])))
    assert resolve(broker, lenient) == []


@pytest.mark.parametrize("fails", [True, False])
def test_trimming_between_planning_and_reading_is_reported(
    broker: Broker,
    trimmed: tuple[str, list[Position]],
    fails: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = f"{trimmed[0]}-{fails}"
    broker.publish(topic, [b"x"] * 25)
    options = broker.options(topic, failOnDataLoss=str(fails), schemaMode="raw")
    (wanted,) = resolve(broker, options)
    broker.ask("DELETE", path_of(topic) + "/truncate")
    broker.publish(topic, [b"y"])
    batches = scan(wanted, ScanPlan(options, StructType([StructField("value", BinaryType())])))
    if fails:
        with pytest.raises(DataLoss, match=r"messages from .* are gone"):
            list(batches)
    else:
        assert list(batches) == []
        assert "are gone" in caplog.text


def test_topics_without_messages(broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    assert resolve(broker, broker.options(topic)) == []
    assert resolve(broker, broker.options(topic, startingTimestamp="5", endingTime="7")) == []
    with pytest.raises(OffsetOutOfRange):
        resolve(broker, broker.options(topic, startingOffsets=one(topic, "0:0")))


def test_ends_in_the_wrong_order(broker: Broker, kept: tuple[str, list[Position]]) -> None:
    topic, at = kept
    for ends in (
        {"startingOffsets": one(topic, str(at[5])), "endingOffsets": one(topic, str(at[4]))},
        {"startingTimestamp": "17", "endingTimestamp": "16"},
    ):
        with pytest.raises(InvalidOption) as caught:
            resolve(broker, broker.options(topic, **ends))
        assert caught.value.option == list(ends)[1]
        assert "starting" in caught.value.reason
        assert topic in caught.value.reason


PARTS = [
    TopicPartition("persistent://a/b/t-partition-0", 0, "persistent://a/b/t"),
    TopicPartition("persistent://a/b/t-partition-1", 1, "persistent://a/b/t"),
]


def test_a_partitions_own_position_wins() -> None:
    places = (("a/b/t", AtTime(5)), ("persistent://a/b/t-partition-1", Edge.LATEST))
    bound = Bound("startingOffsets", Edge.EARLIEST, places)
    check_names(bound, PARTS)
    assert [where_of(bound, part) for part in PARTS] == [AtTime(5), Edge.LATEST]
    other = TopicPartition("persistent://a/b/u", -1, "persistent://a/b/u")
    assert where_of(bound, other) is Edge.EARLIEST


@pytest.mark.parametrize("name", ["t", "a/b/u", "a/b/t-partition-2", "persistent://a/c/t"])
def test_topics_that_are_not_read_are_refused(name: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_names(Bound("endingOffsets", Edge.LATEST, ((name, AtTime(5)),)), PARTS)
    assert caught.value.option == "endingOffsets"
    assert name in caught.value.reason
    assert "persistent://a/b/t" in caught.value.reason


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingTimestamp"])
def test_topics_that_are_not_read_are_refused_early(option: str) -> None:
    given = {"service.url": "pulsar://h", "topic": "a/b/t", option: '{"other": 5}'}
    given = given if option == "startingTimestamp" else {**given, option: '{"other": "1:1"}'}
    with pytest.raises(InvalidOption, match=f"option {option}: names other, which is not one of"):
        check_named(parse_read(given, streaming=None), PARTS)
    # Topics that a pattern found earlier may be deleted.
    del given["topic"]
    check_named(parse_read({**given, "topicsPattern": ".*"}, streaming=None), PARTS)
