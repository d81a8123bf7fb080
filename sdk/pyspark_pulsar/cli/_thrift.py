"""Spark's own Thrift server, for JDBC and ODBC, with topics as tables (spec SP-08).

What a client asks is planned inside the engine, where no statement can be tried again: the tables
are made before, one for each topic of the namespace, and looked after while it serves.
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
from pyspark_pulsar._clients import client_for
from pyspark_pulsar._options import parse_read
from pyspark_pulsar.cli._failures import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_pulsar.cli._tables import Tables

REFRESH_S = 10.0
"""How often topics that came and went are looked for."""
SERVED_MAX = 500
"""Topics of the namespace that become tables; for each its schema is asked."""
_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def serve(
    spark: SparkSession, tables: Tables, options: Mapping[str, str], *, host: str, port: int
) -> None:
    """Serve until SIGINT or SIGTERM; prints one line when it is ready. Raises Failure when it can't
    start, or when the brokers can't be asked for their topics then.
    """
    began = time.monotonic()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    served = _Served(spark, tables, options)
    try:
        served.refresh()
    except geminga.GemingaError as error:
        raise Failure(f"topics of {tables.namespace}: {error}") from error
    server = _start(spark, host, port)
    click.echo(
        f"ready in {time.monotonic() - began:.1f} s: jdbc:hive2://{host}:{_port(server)} "
        f"tables={len(served.names)}"
    )
    while not stopped.wait(REFRESH_S):
        try:
            served.refresh()
        except geminga.GemingaError as error:
            click.echo(f"topics are as they were {REFRESH_S:g} s ago: {error}", err=True)
    server.stop()


class _Served:
    """The namespace's topics that are tables now."""

    def __init__(self, spark: SparkSession, tables: Tables, options: Mapping[str, str]) -> None:
        self.names: set[str] = set()
        self._spark = spark
        self._tables = tables
        self._client = parse_read({**options, "topic": "any"}, streaming=False).client
        self._told: set[str] = set()

    def refresh(self) -> None:
        """Make tables of new topics, drop those of topics that are gone. Raises GemingaError."""
        every = self._topics()
        if len(every) > SERVED_MAX:
            self._tell(f"only {SERVED_MAX} of {len(every)} topics are tables; name others by -t")
        wanted = {*every[:SERVED_MAX], *self._tables.names}
        for name in self.names - wanted:
            self._spark.catalog.dropTempView(name)
            self.names.discard(name)
        for name in sorted(wanted - self.names):
            try:
                self._tables.add(name)
                self.names.add(name)
            except Failure as failure:
                self._tell(str(failure))

    def _topics(self) -> list[str]:
        start = f"persistent://{self._tables.namespace}/"
        pattern = re.compile(re.escape(start) + "[^/]+")
        found = client_for(self._client).topics_matching(pattern)
        return sorted(topic.removeprefix(start) for topic in found)

    def _tell(self, text: str) -> None:
        """Each trouble once, not every few seconds."""
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
    """The port that it really has."""
    for service in server.getServices():
        if service.getName().startswith("Thrift"):
            return int(service.getPortNumber())
    raise Failure("Spark's Thrift server has no port")
