"""What went wrong, in one sentence: Spark's errors carry stack traces of two languages."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

ENGINE_ERRORS = (PySparkException, Py4JError)
"""All that a statement may raise in PySpark."""
_RAISED = re.compile(r"^(?:pyspark_pulsar\.errors|geminga[\w.]*)\.\w+: (.+)$", re.MULTILINE)
"""The last line of a traceback of ours."""


class Failure(Exception):
    """A statement, or the start of it all, failed; the text is a sentence for the user."""


def sentence(error: BaseException) -> str:
    """What a user can do something with."""
    if isinstance(error, Failure):
        return str(error)
    text = _told(error)
    ours = _RAISED.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Spark adds the statement and a mark under the place, which say where it is.
    return "\n".join(_before_trace(lines)) or type(error).__name__


def _told(error: BaseException) -> str:
    if isinstance(error, PySparkException):
        return error.getMessage() or str(error)
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage() or error.java_exception.toString())
    return str(error)


def _before_trace(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if line.startswith(("JVM stacktrace", "Traceback (", "at org.apache", "Driver stacktrace")):
            break
        kept.append(line)
    return kept
