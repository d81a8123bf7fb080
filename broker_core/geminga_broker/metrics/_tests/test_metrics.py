"""The text for Prometheus: it parses, and agrees with the statistics (OP-05)."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.metrics.scrape import SUBSCRIPTION_SERIES, TOPIC_SERIES, process_metrics
from geminga_broker.topic.stats import SubscriptionStats, TopicStats, as_json

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
    topic, subscription = as_json(TopicStats()), as_json(SubscriptionStats())
    assert [field for _metric, field in TOPIC_SERIES if field not in topic] == []
    assert [field for _metric, field in SUBSCRIPTION_SERIES if field not in subscription] == []


def test_fields_without_a_number_are_left_out() -> None:
    text = Exposition()
    text.add_fields([("m", "there"), ("n", "gone"), ("o", "word")], "", {"there": 2, "word": "x"})
    assert families(text.render()) == {"m": [({}, 2.0)]}


def test_process_metrics_have_memory() -> None:
    found = families(process_metrics())
    assert found["process_resident_memory_bytes"][0][1] > 1e6
    assert "process_cpu_seconds_total" in found
