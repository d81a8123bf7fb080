"""How a server process writes its log (spec OP-08)."""

from __future__ import annotations

import logging
import sys
from typing import NamedTuple

from geminga_runtime.logs import LineFormatter
from geminga_runtime.observing.json_lines import JsonFormatter


class LogSettings(NamedTuple):
    """What a command's options say of its log."""

    level: str = "INFO"
    as_json: bool = False


def set_up_logging(settings: LogSettings, process: str = "") -> None:
    """Log to standard error: our packages at their level, other libraries from WARNING on.
    `process` stands in each line, where several processes write to one.
    """
    _ask_less()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(settings, process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for package in (
        "geminga",
        "geminga_broker",
        "geminga_bookie",
        "geminga_proxy",
        "geminga_runtime",
    ):
        logging.getLogger(package).setLevel(settings.level)


def _ask_less() -> None:
    """Have `logging` not find out for each line what no line tells: its place in the code, thread
    and process (Python's documentation names these under "Optimization").
    """
    logging._srcfile = None  # pyright: ignore
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def settings_in_use() -> LogSettings:
    """Those that `set_up_logging` was given last, for processes that this one starts."""
    level = logging.getLogger("geminga_runtime").getEffectiveLevel()
    as_json = any(isinstance(each.formatter, JsonFormatter) for each in logging.root.handlers)
    return LogSettings(logging.getLevelName(level), as_json)


def _formatter(settings: LogSettings, process: str) -> logging.Formatter:
    if settings.as_json:
        return JsonFormatter(process)
    name = f"{process} %(name)s" if process else "%(name)s"
    return LineFormatter(f"%(asctime)s %(levelname)s {name} %(message)s")
