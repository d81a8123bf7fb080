"""The subscription that retains a query's unread messages, on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import geminga
import geminga.blocking
import geminga.testing
from geminga import ConsumerBusyError
from pyspark_pulsar._positions import BEGIN, Position
from pyspark_pulsar._stream import _retention
from pyspark_pulsar._stream._retention import RetentionSubscription
from pyspark_pulsar._tests.admin import ask


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[geminga.blocking.Client]:
    with geminga.blocking.connect(url) as found:
        yield found


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def publish(client: geminga.blocking.Client, topic: str, count: int) -> list[Position]:
    with client.create_producer(topic, batching_enabled=False) as producer:
        ids = [producer.send(b"%d" % n) for n in range(count)]
    return [Position(each.ledger_id, each.entry_id) for each in ids]


def marks(url: geminga.testing.BrokerUrl, topic: str) -> dict[str, str]:
    """The mark-delete positions of a topic's subscriptions."""
    stats = ask(url.web_url, "GET", f"persistent/public/default/{topic}/internalStats")
    return {name: cursor["markDeletePosition"] for name, cursor in stats["cursors"].items()}


def test_it_retains_all_messages_from_the_last_read_one_on(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    at = publish(client, "held", 5)
    retention = RetentionSubscription(client, "mark")
    retention.hold([full("held")])
    assert marks(url, "held") == {"mark": f"{at[0].ledger_id}:-1"}
    for n in (0, 1, 4):
        retention.move({full("held"): at[n]})
        assert marks(url, "held") == {"mark": f"{at[0].ledger_id}:{n - 1}"}


def test_it_never_moves_back_and_supports_parts_of_batches(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    at = publish(client, "parts", 5)
    retention = RetentionSubscription(client, "mark")
    retention.hold([full("parts")])
    retention.move({full("parts"): Position(at[3].ledger_id, 3, 1)})
    retention.move({full("parts"): at[1]})
    retention.move({full("parts"): BEGIN})
    assert marks(url, "parts") == {"mark": f"{at[0].ledger_id}:2"}


def test_many_topics_at_once_and_new_ones_later(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    ends = {full(f"many-{n}"): publish(client, f"many-{n}", 3)[-1] for n in range(12)}
    retention = RetentionSubscription(client, "mark")
    retention.hold(list(ends)[:10])
    retention.hold(list(ends))
    retention.move(ends)
    for topic, end in ends.items():
        found = marks(url, topic.rpartition("/")[2])
        assert found == {"mark": f"{end.ledger_id}:1"}


def test_a_restarted_query_finds_its_mark_again(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    at = publish(client, "again", 5)
    first = RetentionSubscription(client, "mark")
    first.hold([full("again")])
    first.move({full("again"): at[3]})
    second = RetentionSubscription(client, "mark")
    second.hold([full("again")])
    assert marks(url, "again") == {"mark": f"{at[0].ledger_id}:2"}
    second.move({full("again"): at[4]})
    assert marks(url, "again") == {"mark": f"{at[0].ledger_id}:3"}


@pytest.mark.slow
def test_a_subscription_in_use_is_refused(
    client: geminga.blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_retention, "BUSY_S", 0.3)
    with (
        client.subscribe("busy", "mark"),
        pytest.raises(ConsumerBusyError, match="subscriptionName"),
    ):
        RetentionSubscription(client, "mark").hold([full("busy")])


@pytest.mark.slow
def test_a_leaving_consumer_is_waited_for(client: geminga.blocking.Client) -> None:
    consumer = client.subscribe("soon", "mark")
    leaving = threading.Timer(0.4, consumer.close)
    leaving.start()
    RetentionSubscription(client, "mark").hold([full("soon")])
    leaving.join()


def test_a_failed_move_is_retried(
    url: geminga.testing.BrokerUrl,
    client: geminga.blocking.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = publish(client, "late", 5)
    retention = RetentionSubscription(client, "mark")
    retention.hold([full("late")])
    monkeypatch.setattr(_retention, "BUSY_S", 0.1)
    with client.subscribe("late", "mark"):
        retention.move({full("late"): at[2]})
    assert "can't move subscription mark" in caplog.text
    retention.move({full("late"): at[2]})
    assert marks(url, "late") == {"mark": f"{at[0].ledger_id}:1"}
