"""Which tables the Thrift server makes and drops; the server itself runs with the Spark tests."""

from __future__ import annotations

from typing import cast

import pytest

import geminga.blocking
from geminga.testing import BrokerUrl
from pyspark_pulsar._positions import Position
from pyspark_pulsar.cli import _thrift
from pyspark_pulsar.cli._failures import Failure
from pyspark_pulsar.cli._tables import Tables
from pyspark_pulsar.cli._thrift import Ends, Served


class FakeTables:
    """Records created and dropped tables."""

    def __init__(self) -> None:
        self.namespace = "public/default"
        self.names = {"named": "public/other/topic"}
        self.calls: list[str] = []
        self.unreadable: set[str] = set()

    def add(self, name: str) -> None:
        if name in self.unreadable:
            raise Failure(f"table {name}: no")
        self.calls.append(f"+{name}")

    def drop(self, name: str) -> None:
        self.calls.append(f"-{name}")


class Fixed(Served):
    """With topics that the test gives."""

    def __init__(self, tables: FakeTables) -> None:
        super().__init__(cast("Tables", tables), {"service.url": "pulsar://localhost:1"})
        self.there: dict[str, Ends] = {}

    def _topics(self) -> list[str]:
        return sorted(self.there)

    def _ends_of(self, name: str) -> Ends | None:
        return self.there.get(name)


def test_tables_follow_topics(capsys: pytest.CaptureFixture[str]) -> None:
    tables = FakeTables()
    served = Fixed(tables)

    def calls() -> list[str]:
        served.refresh()
        found, tables.calls = tables.calls, []
        return found

    assert calls() == []
    served.there = {"a": (Position(1, 1),), "b": (None, None)}
    assert calls() == ["+a", "+b"]
    assert calls() == []
    served.there["b"] = (None, Position(2, 0))
    assert calls() == ["+b"]
    del served.there["a"]
    tables.unreadable.add("c")
    served.there["c"] = (Position(3, 3),)
    assert calls() == ["-a"]
    tables.unreadable.clear()
    assert calls() == ["+c"]
    assert capsys.readouterr().err == "table c: no\n"


def test_topics_are_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_thrift, "SERVED_MAX", 2)
    tables = FakeTables()
    served = Fixed(tables)
    served.there = dict.fromkeys("dcba", (None,))
    for _ in range(2):
        served.refresh()
    assert tables.calls == ["+a", "+b"]
    assert capsys.readouterr().err == "only 2 of 4 topics are tables; name others with -t\n"


def test_topics_of_a_broker(geminga_broker: BrokerUrl, geminga_namespace: str) -> None:
    tables = FakeTables()
    tables.namespace, tables.names = geminga_namespace, {"named": f"{geminga_namespace}/b"}
    tables.topic_of = lambda name: (
        f"persistent://{geminga_namespace}/{'b' if name == 'named' else name}"
    )
    served = Served(cast("Tables", tables), {"service.url": geminga_broker})
    with geminga.blocking.connect(geminga_broker) as client:
        for name in ("a", "b"):
            client.create_producer(f"persistent://{geminga_namespace}/{name}").close()
        served.refresh()
        assert tables.calls == ["+a", "+b", "+named"]
        with client.create_producer(f"persistent://{geminga_namespace}/b") as producer:
            producer.send(b"x")
        served.refresh()
    assert tables.calls[3:] == ["+b", "+named"]
