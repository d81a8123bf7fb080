"""What the Spark tests share: one Spark in local mode, one broker of ours, one of Apache's.

All live as long as this package's tests, so that nobody else's run beside an engine of 400 MB.
Spark's first query in a process takes some ten seconds. A test that needs another driver (one that
is killed, or of a cluster) runs a program of its own: see `programs.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from compat_tests.apache.jars import require_java
from compat_tests.apache.server import start_apache
from compat_tests.missing import APACHE, SPARK, skipped_without
from compat_tests.processes import start_geminga
from compat_tests.spark.session import LIGHT, environment, spark_session
from compat_tests.spark.topics import SETTINGS, Pulsar

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test here is marked: `-m 'not spark'` leaves Spark out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Pytest gives its handlers to loggers that don't propagate, and a logger of Spark's, made for
    the first error of a query, would have all later tests' `caplog.text` written as JSON."""
    try:
        yield
    finally:
        for logger in list(logging.Logger.manager.loggerDict.values()):
            if isinstance(logger, PySparkLogger):
                logger.propagate = True


@pytest.fixture(scope="package", autouse=True)
def java() -> Iterator[None]:
    """Without Java there is no Spark, here or in a program of a test's own, whose engine starts as
    lightly as ours.
    """
    with skipped_without(SPARK):
        require_java("java")
    with environment({"SPARK_SUBMIT_OPTS": LIGHT}):
        yield


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in local mode on two cores."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="package")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulsar]:
    """`geminga standalone`, a process of its own, that keeps everything."""
    server = start_geminga(tmp_path_factory.mktemp("pulsar") / "data", settings=SETTINGS)
    found = Pulsar(server)
    yield found
    found.close()
    assert server.process.poll() is None, f"the broker ended by itself:\n{server.log_tail()}"
    assert server.stop() == 0, server.log_tail()


@pytest.fixture(scope="package")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulsar]:
    """Apache Pulsar with the same settings. Mark its tests `java`: its jars are fetched first."""
    with skipped_without(APACHE):
        server = start_apache(tmp_path_factory.mktemp("apache") / "work", settings=SETTINGS)
    found = Pulsar(server)
    yield found
    found.close()
    server.kill()


@pytest.fixture(params=["geminga", pytest.param("apache", marks=[pytest.mark.java])])
def either(request: pytest.FixtureRequest) -> Pulsar:
    """Each test that asks for it runs on our broker and on Apache's."""
    return request.getfixturevalue("pulsar" if request.param == "geminga" else "apache")
