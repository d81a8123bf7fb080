"""One Spark for the tests: small, on loopback alone, in UTC, gone without a trace."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from compat_tests.apache.archives import archive_path, shared
from compat_tests.apache.jars import peers_dir, require_java

LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 15.0
HEAP = "1g"
"""Of the driver, where local mode runs everything."""
SPARK_HOME = Path(pyspark.__file__).parent
ARCHIVE = archive_path(peers_dir(), "spark", SPARK_HOME, SPARK_HOME.stat().st_mtime_ns)
"""Of the classes that it loads; see `training.prepare`."""
LIGHT_JIT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compiled once and lightly: tests are over before more would pay."""
LIGHT = " ".join([LIGHT_JIT, *shared(ARCHIVE)])
JAVA_OPTIONS = f"{LIGHT} -Djava.net.preferIPv4Stack=true -Duser.timezone=UTC"


def spark_settings(folder: Path) -> dict[str, str]:
    """What every Spark of the tests is told; all that it writes goes into the folder."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.home={folder}/derby",
        "spark.local.dir": f"{folder}/local",
        "spark.log.level": "ERROR",
        "spark.python.worker.faulthandler.enabled": "true",
        # Nothing is fetched: without it Ivy makes its caches in the home directory.
        "spark.jars.ivy": f"{folder}/ivy",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }


def spark_environment(python: str = sys.executable) -> dict[str, str]:
    """For the processes that Spark starts: this Python, this host, this zone."""
    return {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_HOSTNAME": LOOPBACK,
        "TZ": "UTC",
    }


@contextlib.contextmanager
def spark_session(
    folder: Path,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    stop_timeout_s: float = STOP_TIMEOUT_S,
) -> Iterator[SparkSession]:
    """A session, and its engine's process, until the block ends; a process has one at a time.

    Raises PeerMissing without Java.
    """
    require_java("java")
    with environment(spark_environment()):
        builder: Any = SparkSession.builder.master(master).appName("compat_tests")
        for key, value in (spark_settings(folder) | dict(settings or {})).items():
            builder = builder.config(key, value)
        session: SparkSession = builder.getOrCreate()
        try:
            yield session
        finally:
            _end(session, stop_timeout_s)


def _end(session: SparkSession, timeout_s: float) -> None:
    for query in session.streams.active:
        query.stop()
    gateway: Any = SparkContext._gateway
    session.stop()
    # The engine outlives its session, and PySpark would use it again, with the old settings.
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process, and of those that it starts, until the block ends."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    time.tzset()
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
        time.tzset()
