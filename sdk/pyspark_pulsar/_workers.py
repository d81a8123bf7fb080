"""The Python that Spark's workers run: `PYSPARK_PYTHON`, else the `python3` of the path (spec
SP-09).

A program started as `venv/bin/python app.py`, without an active environment, has workers of another
Python, which don't find the connector. Importing the package in the program corrects that; in a
worker it does nothing.
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
"""If one of these is set, the user has chosen the Python, or the workers run elsewhere."""
_ENGINE_RUNS = "PYSPARK_GATEWAY_PORT"
"""Set in programs that `spark-submit` started: it has chosen already."""


def ensure_workers_python(
    environ: MutableMapping[str, str] | None = None, executable: str | None = None
) -> None:
    """Let workers run this program's Python, unless the user has chosen another, or `python3` is of
    the same environment. If a session exists already, only warn.
    """
    environ = os.environ if environ is None else environ
    executable = sys.executable if executable is None else executable
    if any(name in environ for name in (*_TOLD, _ENGINE_RUNS)) or not executable:
        return
    if _is_worker():
        return
    found = shutil.which("python3", path=environ.get("PATH"))
    # Environments may link to one interpreter: compare the folders, not the files.
    if found is not None and Path(found).absolute().parent == Path(executable).absolute().parent:
        return
    environ[PYTHON] = executable
    if _has_session():
        logger.warning(
            "Spark was started before pyspark_pulsar was imported, and its workers run %s, not "
            "this program's Python %s: import pyspark_pulsar first, or set %s, else they may not "
            "find the connector (DATA_SOURCE_NOT_FOUND)",
            found or "python3, which is not installed",
            executable,
            PYTHON,
        )


def _is_worker() -> bool:
    """Whether this process is one of Spark's workers."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (
        main is not None and main.name.startswith("pyspark.")
    ) or "pyspark.daemon" in sys.modules


def _has_session() -> bool:
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context = getattr(core, "SparkContext", None)
    return getattr(context, "_active_spark_context", None) is not None
