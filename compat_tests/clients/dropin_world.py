"""Where the little programs of test_dropin.py run: with the official module, or with ours."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat_tests.clients.conftest import WAIT_MS
from compat_tests.processes import ServerProcess


class World:
    """A module, a client of it, and what the program says."""

    def __init__(self, pulsar: Any, server: ServerProcess, keys: Path) -> None:
        self.pulsar = pulsar
        self.server = server
        self.keys = keys
        self.said: list[object] = []
        self._mark = uuid.uuid4().hex[:8]
        self.client = self.new_client()

    def new_client(self, **options: Any) -> Any:
        """Another client."""
        pulsar = self.pulsar
        options.setdefault("logger", pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        return pulsar.Client(self.server.service_url, **options)

    def say(self, *words: object) -> None:
        """Keep what would be printed; this run's mark is left out."""
        self.said.append(str(words).replace(self._mark, "MARK"))

    def topic(self, name: str = "one") -> str:
        """A fresh topic's full name."""
        return f"persistent://public/default/dropin-{name}-{self._mark}"

    def partitioned(self, name: str, partitions: int) -> str:
        """A fresh partitioned topic."""
        topic = self.topic(name)
        path = topic.replace("://", "/")
        request = urllib.request.Request(
            f"{self.server.web_url}/admin/v2/{path}/partitions",
            method="PUT",
            data=str(partitions).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=60).close()
        return topic

    def subscriptions(self, topic: str) -> list[str]:
        """The subscriptions of a topic, by the admin interface."""
        path = topic.replace("://", "/")
        url = f"{self.server.web_url}/admin/v2/{path}/stats"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return sorted(json.load(answer)["subscriptions"])

    def error(self, call: Callable[[], object]) -> None:
        """Say which error a call raises, or that it raises none."""
        try:
            call()
        except Exception as error:
            self.say(type(error).__name__, isinstance(error, self.pulsar.PulsarException))
        else:
            self.say("no error")

    def take(self, consumer: Any, count: int) -> list[Any]:
        """So many messages, acknowledged."""
        messages = [consumer.receive(WAIT_MS) for _ in range(count)]
        for message in messages:
            consumer.acknowledge(message)
        return messages


def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in another thread."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
