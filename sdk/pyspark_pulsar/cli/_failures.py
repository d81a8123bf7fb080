"""Errors in one sentence: Spark's contain stack traces of two languages."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

ENGINE_ERRORS = (PySparkException, Py4JError)
"""Errors that PySpark raises for a statement."""
_RAISED = re.compile(r"^(?:pyspark_pulsar\.errors|geminga[\w.]*)\.\w+: (.+)$", re.MULTILINE)
"""The last line of a traceback of this package."""


class Failure(Exception):
    """A statement or the start failed; the text is a sentence for the user."""


def sentence(error: BaseException) -> str:
    """The part of an error that helps a user."""
    if isinstance(error, Failure):
        return str(error)
    text = _told(error)
    ours = _RAISED.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Spark adds the statement with a mark under the wrong place.
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
