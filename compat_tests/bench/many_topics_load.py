"""Messages to many topics at a steady rate through the official Python client, with a consumer on
each: ``python -m compat_tests.bench.many_topics_load --url URL --topics N --duration-s S``.

Prints "running" once all topics have clients, and at the end one JSON line: the longest time
between two receipts of a topic, over all topics, and what became of the messages.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count

import pulsar

from compat_tests.bench.topic_counts import TopicCounts, arguments, result

SEND_TIMEOUT_MS = 120_000


class Topic(TopicCounts):
    """One topic's producer, consumer and counts."""

    def __init__(self, client: pulsar.Client, name: str) -> None:
        super().__init__()
        self._consumer = client.subscribe(
            name, "s", pulsar.ConsumerType.Exclusive, message_listener=self._take
        )
        self._producer = client.create_producer(
            name, send_timeout_millis=SEND_TIMEOUT_MS, max_pending_messages=100_000
        )

    def send(self) -> None:
        """One more message, which says when it was sent."""
        number, self.sent = self.sent, self.sent + 1
        self._producer.send_async(b"%d" % number, partial(self._receipt, time.monotonic()))

    def _receipt(self, sent: float, result: pulsar.Result, _: pulsar.MessageId) -> None:
        self.settled(time.monotonic() - sent, is_stored=result == pulsar.Result.Ok)

    def _take(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        self.came(int(message.data()))
        consumer.acknowledge(message)


def main() -> None:
    """Run the load."""
    parser = arguments(__doc__)
    parser.add_argument("--patience-s", type=float, default=120.0)
    options = parser.parse_args()
    client = pulsar.Client(
        options.url,
        operation_timeout_seconds=60,
        io_threads=1,
        message_listener_threads=1,
        logger=_silent(),
    )
    topics = [Topic(client, f"{options.prefix}-{number}") for number in range(options.topics)]
    print("running", flush=True)
    _publish(topics, options.rate, options.duration_s)
    _wait(topics, options.patience_s)
    print(json.dumps(result(topics)), flush=True)
    os._exit(0)


def _silent() -> logging.Logger:
    """A killed broker is no news here."""
    logger = logging.getLogger("pulsar")
    logger.setLevel(logging.CRITICAL)
    return logger


def _publish(topics: list[Topic], rate: float, duration_s: float) -> None:
    began = time.monotonic()
    for number in count():
        due = began + number / rate
        if due > began + duration_s:
            return
        if (wait_s := due - time.monotonic()) > 0:
            time.sleep(wait_s)
        topics[number % len(topics)].send()


def _wait(topics: list[Topic], patience_s: float) -> None:
    def all_are(done: Callable[[Topic], bool]) -> bool:
        return all(done(topic) for topic in topics)

    deadline = time.monotonic() + patience_s
    pause = threading.Event()
    while time.monotonic() < deadline:
        if all_are(lambda t: t.receipts + t.failed == t.sent and len(t.received) >= t.receipts):
            return
        pause.wait(0.1)


if __name__ == "__main__":
    main()
