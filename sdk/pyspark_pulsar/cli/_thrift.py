"""Spark's own Thrift server, for JDBC and ODBC, with topics as tables (spec SP-08).

Clients' statements are planned in the engine, where none can be tried again: so the tables are
created before, one for each topic of the namespace. Spark plans a view once, so a table is created
again when its topic has grown.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

import geminga
from pyspark_pulsar._clients import client_for, for_each
from pyspark_pulsar._options import TopicSelection, parse_read
from pyspark_pulsar._plan._topics import TopicProbe, expand
from pyspark_pulsar._positions import Position
from pyspark_pulsar.cli._failures import Failure
from pyspark_pulsar.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_pulsar.cli._tables import Tables

REFRESH_S = 10.0
"""How often to look for new topics and messages."""
WORK_SHARE_MAX = 0.2
"""Maximum share of time for that; with many topics it is done less often."""
SERVED_MAX = 500
"""Maximum topics of the namespace that become tables."""
_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"

Ends = tuple[Position | None, ...]
"""The last positions of a topic's partitions."""


def serve(
    spark: SparkSession, tables: Tables, options: Mapping[str, str], *, host: str, port: int
) -> None:
    """Serve until SIGINT or SIGTERM; prints one line when ready. Raises Failure if it can't start,
    or can't list the topics at the start.
    """
    began_s = time.monotonic()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    served = Served(tables, options)
    try:
        served.refresh()
    except geminga.GemingaError as error:
        raise Failure(f"topics of {tables.namespace}: {error}") from error
    server = _start(spark, host, port)
    click.echo(
        f"ready in {time.monotonic() - began_s:.1f} s: jdbc:hive2://{host}:{_port(server)} "
        f"tables={len(served.ends)}"
    )
    work_s = 0.0
    while not stopped.wait(max(REFRESH_S, work_s / WORK_SHARE_MAX)):
        began_s = time.monotonic()
        try:
            served.refresh()
        except geminga.GemingaError as error:
            click.echo(f"tables were not refreshed: {error}", err=True)
        work_s = time.monotonic() - began_s
    server.stop()


class Served:
    """The current tables: topics of the namespace, and named ones."""

    def __init__(self, tables: Tables, options: Mapping[str, str]) -> None:
        self.ends: dict[str, Ends] = {}
        """Table -> the ends of its topic when it was created."""
        self._tables = tables
        self._client = parse_read({**options, "topic": "any"}, streaming=False).client
        self._told: set[str] = set()

    def refresh(self) -> None:
        """Create tables of topics that are new or have grown, drop those of deleted topics. Raises
        GemingaError.
        """
        topics = self._topics()
        if len(topics) > SERVED_MAX:
            self._tell(f"only {SERVED_MAX} of {len(topics)} topics are tables; name others with -t")
        wanted = sorted({*topics[:SERVED_MAX], *self._tables.names})
        ends = dict(zip(wanted, for_each(self._ends_of, wanted), strict=True))
        for name in [each for each in self.ends if ends.get(each) is None]:
            self._tables.drop(name)
            del self.ends[name]
        for name, found in ends.items():
            if found is None or found == self.ends.get(name):
                continue
            try:
                self._tables.add(name)
                self.ends[name] = found
            except Failure as failure:
                self._tell(str(failure))

    def _topics(self) -> list[str]:
        start = f"persistent://{self._tables.namespace}/"
        # The namespace of such a pattern is literal.
        found = client_for(self._client).list_topics(re.compile(f"{start}[^/]+"))
        return sorted(topic.removeprefix(start) for topic in found)

    def _ends_of(self, name: str) -> Ends | None:
        """The ends of a table's topic; None if it doesn't exist."""
        client = client_for(self._client)
        try:
            topic = self._tables.topic_of(name)
            parts = expand(client, TopicSelection("topic", (topic,)))
            return tuple(TopicProbe(client).last_position(part.topic) for part in parts)
        except ConnectorError as error:
            self._tell(f"table {name}: {error}")
            return None

    def _tell(self, text: str) -> None:
        """Print each problem once, not every few seconds."""
        if text not in self._told:
            self._told.add(text)
            click.echo(text, err=True)


def _start(spark: SparkSession, host: str, port: int) -> Any:
    from py4j.protocol import Py4JError

    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("hive.server2.thrift.bind.host", host)
    hadoop.set("hive.server2.thrift.port", str(port))
    try:
        found = jvm
        for part in _SERVER.split("."):
            found = getattr(found, part)
        return found.startWithContext(spark._jsparkSession.sqlContext())
    except (Py4JError, TypeError) as error:
        raise Failure(f"Spark's Thrift server does not start on {host}:{port}: {error}") from error


def _port(server: Any) -> int:
    """The server's actual port."""
    for service in server.getServices():
        if service.getName().startswith("Thrift"):
            return int(service.getPortNumber())
    raise Failure("Spark's Thrift server has no port")
