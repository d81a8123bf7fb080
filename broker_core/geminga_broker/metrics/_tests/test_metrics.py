"""The text for Prometheus: it parses, and agrees with the statistics (OP-05)."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from geminga_broker.metrics.exposition import Exposition
from geminga_broker.metrics.scrape import add_process
from geminga_broker.metrics.series import (
    BROKER_SERIES,
    CONSUMER_SERIES,
    NAMESPACE_SERIES,
    PRODUCER_SERIES,
    SUBSCRIPTION_SERIES,
    TOPIC_SERIES,
    StatsTable,
)
from geminga_broker.topic.stats import ConsumerStats, PublisherStats, SubscriptionStats, TopicStats
from geminga_runtime.metrics.distribution import Distribution
from geminga_runtime.metrics.labels import labels

ODD = 'a "quoted"\\back\nslash'


def families(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        sample.name: [(one.labels, one.value) for one in family.samples if one.name == sample.name]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_labels_survive_a_parser() -> None:
    text = Exposition()
    text.add("pulsar_x", labels([("topic", ODD)]), 1.5)
    text.add("pulsar_x", labels([("topic", "plain")]), True)
    assert families(text.render())["pulsar_x"] == [({"topic": ODD}, 1.5), ({"topic": "plain"}, 1.0)]


def test_lines_of_a_metric_stay_together() -> None:
    text = Exposition()
    for topic in ("a", "b"):
        for metric in ("pulsar_in", "pulsar_out"):
            text.add(metric, labels([("topic", topic)]), 1)
    names = [line.split("{")[0] for line in text.render().splitlines() if "{" in line]
    assert names == ["pulsar_in", "pulsar_in", "pulsar_out", "pulsar_out"]
    assert text.render().count("# TYPE pulsar_in gauge") == 1


def test_every_series_reads_a_field_that_exists() -> None:
    for kind, series in (
        (TopicStats, TOPIC_SERIES),
        (TopicStats, NAMESPACE_SERIES),
        (TopicStats, BROKER_SERIES),
        (SubscriptionStats, SUBSCRIPTION_SERIES),
        (ConsumerStats, CONSUMER_SERIES),
        (PublisherStats, PRODUCER_SERIES),
    ):
        found = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert [field for _metric, field in series if field not in found] == []
    # Sums of the broker are read from those of its namespaces.
    assert {field for _, field in BROKER_SERIES} <= {field for _, field in NAMESPACE_SERIES}


def test_fields_without_a_value_are_left_out() -> None:
    text = Exposition()
    table = StatsTable(text, SubscriptionStats, SUBSCRIPTION_SERIES)
    table.add(SubscriptionStats(blocked_subscription_on_unacked_msgs=True), "")
    found = families(text.render())
    assert found["pulsar_subscription_blocked_on_unacked_messages"] == [({}, 1.0)]
    assert "pulsar_subscription_msg_drop_rate" not in found


def test_summaries_are_in_milliseconds() -> None:
    text, values = Exposition(), Distribution()
    text.summary("pulsar_empty", (), values, (0.5,), 1.0)
    values.add(0.010, 3)
    values.add(2.0)
    text.summary("pulsar_full", [("cluster", "c")], values, (0.0, 0.5, 1.0), 1.0)
    found = families(text.render())
    assert found["pulsar_empty_count"] == [({}, 0.0)]
    [least, middle, most] = [value for _, value in found["pulsar_full"]]
    assert 10 <= least == middle <= 11
    assert 2000 <= most <= 2200
    assert found["pulsar_full_sum"] == [({"cluster": "c"}, 2030.0)]
    assert "# TYPE pulsar_full summary" in text.render()


def test_process_metrics_have_memory() -> None:
    text = Exposition()
    add_process(text, [("cluster", "c")])
    found = families(text.render())
    assert found["process_resident_memory_bytes"][0][1] > 1e6
    assert found["process_cpu_seconds_total"][0][0] == {"cluster": "c"}
