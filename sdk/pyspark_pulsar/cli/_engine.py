"""Starts Spark for the command line: quiet, in UTC, without files in the current folder."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_pulsar.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"


class EngineMissing(ConnectorError):
    """Spark or Java isn't installed, or its engine doesn't start."""


@contextlib.contextmanager
def engine(master: str, settings: Mapping[str, str], *, verbose: bool) -> Iterator[SparkSession]:
    """A session whose engine ends with the block. Raises EngineMissing."""
    if importlib.util.find_spec("pyspark") is None:
        raise EngineMissing('Spark is not installed: pip install "geminga[spark]"')
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise EngineMissing("Spark needs Java 17 or newer, and java is not on the path")
    # Collected times are in the process's time zone.
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    # Errors are printed in a sentence; suppress Spark's record of a hundred lines.
    logging.getLogger("SQLQueryContextLogger").disabled = not verbose
    with tempfile.TemporaryDirectory(prefix="geminga-sql-") as folder:
        session = _start(
            master, {**_defaults(master, folder, verbose=verbose), **settings}, verbose
        )
        try:
            yield session
        finally:
            session.stop()


def _defaults(master: str, folder: str, *, verbose: bool) -> dict[str, str]:
    here = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    return {
        **(here if master.startswith("local") else {}),
        "spark.app.name": "geminga sql",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN" if verbose else "ERROR",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        # All clients see the same tables.
        "spark.sql.hive.thriftServer.singleSession": "true",
    }


def _start(master: str, settings: Mapping[str, str], verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setMaster(master).setAll(list(settings.items()))
    # The engine's logs would appear between the prompt's lines.
    errors = None if verbose else subprocess.DEVNULL
    launch: Any = launch_gateway  # it has no types
    try:
        gateway = launch(conf, {"stderr": errors, "stdout": errors})
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except PySparkException as error:
        raise EngineMissing(
            f"Spark's engine does not start, --verbose shows why: {error.getMessage()}"
        ) from error
