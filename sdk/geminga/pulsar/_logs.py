"""Where a client's log goes, with the names of the official client."""

from __future__ import annotations

import logging
import sys
from functools import partial
from itertools import takewhile

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
        self.target = target

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record on, to handlers that don't get it anyway: several loggers may lead to
        one. Without any it goes where Python's loggers write then.
        """
        if not self._takes(record):
            return
        known = _reached(OURS)
        for other in takewhile(lambda each: each is not self, list(_attached)):
            if isinstance(other, _Forwarding) and other._takes(record):
                known += other._handlers()
        for handler in self._handlers():
            if handler not in known and record.levelno >= handler.level:
                handler.handle(record)

    def _takes(self, record: logging.LogRecord) -> bool:
        return self.target.isEnabledFor(record.levelno) and bool(self.target.filter(record))

    def _handlers(self) -> list[logging.Handler]:
        found = _reached(self.target)
        last = logging.lastResort
        return found if found or last is None else [last]


def _reached(logger: logging.Logger | None) -> list[logging.Handler]:
    """The handlers of a logger and of those above it."""
    found: list[logging.Handler] = []
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def _place_of(handler: logging.Handler) -> object:
    """Where it writes: a logger, a file, or else the standard output of when it was made."""
    places = (getattr(handler, name, None) for name in ("target", "baseFilename", "stream"))
    return next((place for place in places if place is not None), None)


_attached: list[logging.Handler] = []
"""Those of all clients."""


def _is_first(handler: logging.Handler, record: logging.LogRecord) -> bool:
    """Whether no other client's handler writes the record to the same place. A program may have
    taken that one away.
    """
    place = _place_of(handler)
    takers = (
        each
        for each in OURS.handlers
        if each in _attached and record.levelno >= each.level and _place_of(each) == place
    )
    return next(takers, handler) is handler


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
        handler.addFilter(partial(_is_first, handler))
        _attached.append(handler)
        OURS.addHandler(handler)
        if OURS.getEffectiveLevel() > handler.level > logging.NOTSET:
            OURS.setLevel(handler.level)


def detach(handler: logging.Handler | None) -> None:
    """Stop to write. Idempotent."""
    if handler is not None:
        OURS.removeHandler(handler)
        if handler in _attached:
            _attached.remove(handler)
        handler.close()
