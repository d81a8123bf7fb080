"""Where a client's log goes, with the names of the official client."""

from __future__ import annotations

import logging
import sys

from geminga.pulsar._checks import check_type
from geminga.pulsar._enums import LoggerLevel

OURS = logging.getLogger("geminga")
_LEVELS = {
    LoggerLevel.Debug: logging.DEBUG,
    LoggerLevel.Info: logging.INFO,
    LoggerLevel.Warn: logging.WARNING,
    LoggerLevel.Error: logging.ERROR,
}


class ConsoleLogger:
    """Writes the log to the standard output, from a level on."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        check_type(LoggerLevel, log_level, "log_level")
        self.log_level = log_level


class FileLogger:
    """Appends the log to a file, from a level on."""

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        check_type(LoggerLevel, log_level, "log_level")
        check_type(str, log_file, "log_file")
        self.log_level = log_level
        self.log_file = log_file


class _Forwarding(logging.Handler):
    def __init__(self, target: logging.Logger) -> None:
        super().__init__(target.getEffectiveLevel())
        self._target = target

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record on."""
        if self._target.isEnabledFor(record.levelno):
            self._target.handle(record)


def handler_of(given: object) -> logging.Handler | None:
    """The handler for a client's `logger`, to be added to the logger "geminga". Raises ValueError.

    None for a logger that has these records anyway.
    """
    if isinstance(given, logging.Logger):
        has_them = given.name.partition(".")[0] == OURS.name or given is logging.getLogger()
        return None if has_them else _Forwarding(given)
    if given is None:
        return None
    made: logging.Handler
    if isinstance(given, ConsoleLogger):
        made = logging.StreamHandler(sys.stdout)
    elif isinstance(given, FileLogger):
        made = logging.FileHandler(given.log_file)
    else:
        raise ValueError("logger must be a logging.Logger, ConsoleLogger or FileLogger")
    made.setLevel(_LEVELS[given.log_level])
    made.setFormatter(logging.Formatter("%(asctime)s %(levelname)-5s %(message)s"))
    return made


def attach(handler: logging.Handler | None) -> None:
    """Begin to write."""
    if handler is not None:
        OURS.addHandler(handler)
        if OURS.getEffectiveLevel() > handler.level > logging.NOTSET:
            OURS.setLevel(handler.level)


def detach(handler: logging.Handler | None) -> None:
    """Stop to write. Idempotent."""
    if handler is not None:
        OURS.removeHandler(handler)
        handler.close()
