"""Which Python Spark's workers run: `PYSPARK_PYTHON`, else whatever `python3` means (spec SP-09).

A program that is started as `venv/bin/python app.py`, without its environment being active, has
workers of another Python, which don't find the connector. Importing the package in the program sees
to that; in a worker it does nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path

logger = logging.getLogger("pyspark_pulsar")

PYTHON = "PYSPARK_PYTHON"
_TOLD = (PYTHON, "PYSPARK_DRIVER_PYTHON", "SPARK_REMOTE")
"""Who set one of these has said what is to be run, or runs no workers here."""
_ENGINE_RUNS = "PYSPARK_GATEWAY_PORT"
"""Set in programs that Spark's engine has started (`spark-submit`): it chose already."""


def ensure_workers_python(
    environ: MutableMapping[str, str] | None = None, executable: str | None = None
) -> None:
    """Let workers run this program's Python, unless it is said what they run, or `python3` is of
    the same environment. Too late, for a session that is there already, it only warns.
    """
    environ = os.environ if environ is None else environ
    executable = sys.executable if executable is None else executable
    if any(name in environ for name in (*_TOLD, _ENGINE_RUNS)) or not executable:
        return
    if _is_worker():
        return
    found = shutil.which("python3", path=environ.get("PATH"))
    # Environments link to one interpreter: the folder tells them apart, not the file.
    if found is not None and Path(found).absolute().parent == Path(executable).absolute().parent:
        return
    environ[PYTHON] = executable
    if _has_session():
        logger.warning(
            "Spark was started before pyspark_pulsar was imported, and its workers run %s, not "
            "this program's Python %s: import pyspark_pulsar first, or set %s, else they may not "
            "find the connector (DATA_SOURCE_NOT_FOUND)",
            found or "python3, which isn't there",
            executable,
            PYTHON,
        )


def _is_worker() -> bool:
    """Whether this is one of Spark's workers, which run such a module."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (
        main is not None and main.name.startswith("pyspark.")
    ) or "pyspark.daemon" in sys.modules


def _has_session() -> bool:
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context = getattr(core, "SparkContext", None)
    return getattr(context, "_active_spark_context", None) is not None
