"""Queries to a broker: names, ends, positions of times, layouts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest

import geminga
from pyspark_pulsar._options import TopicSelection
from pyspark_pulsar._plan import _topics
from pyspark_pulsar._plan._topics import (
    TopicProbe,
    expand,
    layout,
)
from pyspark_pulsar._positions import BEGIN, LedgerSpan, Position, TopicPartition
from pyspark_pulsar._tests.broker import LEDGER, Broker, running_broker
from pyspark_pulsar.errors import InvalidOption, TopicMissing


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


def positions(ids: list[geminga.MessageId]) -> list[Position]:
    """The entries, each once."""
    return sorted({Position(each.ledger_id, each.entry_id) for each in ids})


def spans(entries: list[Position]) -> list[LedgerSpan]:
    """The layout that entries make."""
    each = {key: list(group) for key, group in groupby(entries, lambda at: at.ledger_id)}
    return [LedgerSpan(key, at[0].entry_id, at[-1].entry_id) for key, at in each.items()]


def select(*names: str) -> TopicSelection:
    return TopicSelection("topics", names)


def test_topics_and_their_partitions(broker: Broker) -> None:
    plain, parted = broker.topic(), broker.topic(partitions=3)
    broker.publish(plain, [b"x"])
    each = [TopicPartition(f"{parted}-partition-{n}", n, parted) for n in range(3)]
    assert expand(broker.client, select(plain)) == [TopicPartition(plain, -1, plain)]
    assert expand(broker.client, select(parted)) == each
    assert expand(broker.client, select(each[2].topic)) == [each[2]]
    both = expand(broker.client, select(each[1].topic, parted, plain, plain))
    assert both == [each[1], each[0], each[2], TopicPartition(plain, -1, plain)]
    assert expand(broker.client, select(plain.rpartition("/")[2])) == [
        TopicPartition(plain, -1, plain)
    ]


def test_patterns(broker: Broker) -> None:
    plain, parted = broker.topic(), broker.topic(partitions=2)
    broker.publish(plain, [b"x"])
    broker.publish(parted, [b"x"] * 4)
    either = f"({plain[-11:]}|{parted[-11:]})"
    for pattern in (either, f"persistent://public/default/{either}"):
        found = expand(broker.client, TopicSelection("topicsPattern", pattern=pattern))
        assert sorted(part.topic for part in found) == sorted(
            [plain, f"{parted}-partition-0", f"{parted}-partition-1"]
        )
    with pytest.raises(TopicMissing) as missing:
        expand(broker.client, TopicSelection("topicsPattern", pattern="no-such-.*"))
    assert missing.value.topic == "no-such-.*"
    with pytest.raises(InvalidOption) as refused:
        expand(broker.client, TopicSelection("subscribePattern", pattern="a/b/"))
    assert refused.value.option == "subscribePattern"


def test_reading_creates_no_topic(broker: Broker) -> None:
    parted = broker.topic(partitions=1)
    for name in (broker.topic(), f"{parted}-partition-1", f"{broker.topic()}-partition-0"):
        with pytest.raises(TopicMissing) as missing:
            expand(broker.client, select(name))
        assert missing.value.topic == name
        listed = broker.ask("GET", "persistent/public/default")
        assert name not in listed


def test_invalid_names(broker: Broker) -> None:
    for name in (
        "non-persistent://public/default/t",
        "persistent://only-this",
        "persistent://a//b",
    ):
        with pytest.raises(InvalidOption) as refused:
            expand(broker.client, select(name))
        assert refused.value.option == "topics"


def test_ends_and_places(broker: Broker) -> None:
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"%d" % n for n in range(25)]))
    assert len(spans(entries)) > 1
    assert TopicProbe(broker.client).first_position(topic) == entries[0]
    assert TopicProbe(broker.client).last_position(topic) == entries[-1]
    for at in (entries[0], entries[12], entries[24]):
        assert TopicProbe(broker.client).first_from(topic, at) == at
    # After a ledger's end comes the next one's beginning.
    behind = Position(entries[0].ledger_id, 1 << 62)
    assert TopicProbe(broker.client).first_from(topic, behind) == next(
        at for at in entries if at.ledger_id > behind.ledger_id
    )
    assert TopicProbe(broker.client).first_from(topic, entries[24].after) is None


def test_topics_without_messages(broker: Broker) -> None:
    topic = f"{broker.topic(partitions=1)}-partition-0"
    assert TopicProbe(broker.client).first_position(topic) is None
    assert TopicProbe(broker.client).last_position(topic) is None
    assert TopicProbe(broker.client).position_at(topic, 0) is None
    assert TopicProbe(broker.client).messages_per_entry(topic, BEGIN) == 1.0
    assert layout(broker.client, topic, broker.options(topic), BEGIN, Position(0, 0)) == []


@pytest.mark.slow
def test_places_of_times(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, [b"%d" % n for n in range(12)])
    with broker.client.create_reader(topic, geminga.EARLIEST) as reader:
        messages = [reader.read_next(5.0) for _ in range(12)]
    times = [message.publish_time_ms for message in messages]
    for time_ms in sorted({*times, times[-1] + 1}):
        later = [m for m in messages if m.publish_time_ms >= time_ms]
        wanted = (
            Position(later[0].message_id.ledger_id, later[0].message_id.entry_id) if later else None
        )
        assert TopicProbe(broker.client).position_at(topic, time_ms) == wanted


def test_samples_of_batches(broker: Broker) -> None:
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"x"] * 30, per_batch=15))
    assert len(entries) < 10
    assert TopicProbe(broker.client).messages_per_entry(topic, BEGIN) == 30 / len(entries)


def test_the_layout_of_one_ledger_needs_no_request(broker: Broker) -> None:
    start, stop = Position(7, 3, 1), Position(7, 9)
    topic = "persistent://public/default/not-there"
    assert layout(broker.client, topic, broker.options(topic), start, stop) == [LedgerSpan(7, 3, 9)]


def test_layout_by_rest_is_exact(broker: Broker) -> None:
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"x"] * 37))
    options = broker.options(topic, **{"admin.url": broker.web_url})
    assert layout(broker.client, topic, options, BEGIN, entries[-1]) == spans(entries)
    inner = layout(broker.client, topic, options, entries[LEDGER], entries[25])
    assert [span.ledger_id for span in inner] == sorted({at.ledger_id for at in entries[LEDGER:26]})


def test_layout_by_ids(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_topics, "LEDGER_ENTRIES", LEDGER)
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"x"] * 37))
    found = layout(broker.client, topic, broker.options(topic), BEGIN, entries[-1])
    assert found == spans(entries)
    start, stop = entries[4], entries[23]
    found = layout(broker.client, topic, broker.options(topic), start, stop)
    assert found == spans(entries[4:24])


def test_sizes_of_ledgers_are_estimated(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"x"] * 30))
    for guess in (1, 3, 64, 5000, 50_000):
        monkeypatch.setattr(_topics, "LEDGER_ENTRIES", guess)
        found = layout(broker.client, topic, broker.options(topic), BEGIN, entries[-1])
        for span, there in zip(found, spans(entries), strict=True):
            assert (span.ledger_id, span.first_entry) == (there.ledger_id, there.first_entry)
            assert there.entries - 2 <= span.entries <= there.entries, guess


def test_probes_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"x"] * 85))
    asked: list[Position] = []
    ask = TopicProbe.first_from

    def counted(probe: TopicProbe, topic: str, at: Position) -> Position | None:
        asked.append(at)
        return ask(probe, topic, at)

    monkeypatch.setattr(TopicProbe, "first_from", counted)
    monkeypatch.setattr(_topics, "PROBES_MAX", 8)
    found = layout(broker.client, topic, broker.options(topic), BEGIN, entries[-1])
    assert len(asked) <= 8
    ledgers = [span.ledger_id for span in found]
    assert ledgers == sorted(set(ledgers))
    assert ledgers[0] == entries[0].ledger_id
    assert not all(span.is_sure for span in found)
    assert found[-1] == spans(entries)[-1]


def test_an_unreachable_rest_api_is_named(broker: Broker) -> None:
    topic = broker.topic()
    entries = positions(broker.publish(topic, [b"x"] * 12))
    for url in ("http://127.0.0.1:1", broker.web_url + "/metrics"):
        options = broker.options(topic, **{"admin.url": url})
        with pytest.raises((InvalidOption, TopicMissing)) as caught:
            layout(broker.client, topic, options, BEGIN, entries[-1])
        assert "admin.url" in str(caught.value)
