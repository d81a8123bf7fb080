"""Logging of the server processes: one line for each event, `key=value` where a thing is named
(spec OP-08).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType

import trio

SHOWN_CHARACTERS_MAX = 300
"""Characters of a peer's text that are logged."""

LINE_CHARACTERS_MAX = 4000
"""Bound of a log line, whatever a message quotes."""

TRACEBACK_CHARACTERS_MAX = 32_000
"""Bound of a traceback; its end is kept, which names the error."""

_BREAKS = {code: f"\\x{code:02x}" for code in (*range(32), 127, 0x85)} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def shown(text: str) -> str:
    """A peer's text for a log: cut short, without line breaks."""
    rest = len(text) - SHOWN_CHARACTERS_MAX
    cut = text if rest <= 0 else f"{text[:SHOWN_CHARACTERS_MAX]}... ({rest} more)"
    return in_one_line(cut)


def in_one_line(text: str) -> str:
    """The text without line breaks and control characters; most texts have none."""
    return text if text.isprintable() else text.translate(_BREAKS)


def printable(text: str) -> str:
    """A text that others chose, without characters that a terminal obeys."""
    return "".join(each if each.isprintable() else "?" for each in text)


class LineBudget:
    """A bound on the log lines that one peer may cause in a period; counts the dropped ones."""

    __slots__ = ("_lines", "_period_s", "_until_s", "_written", "left_out")

    def __init__(self, lines: int, period_s: float) -> None:
        self._lines = lines
        self._period_s = period_s
        self._until_s = float("-inf")
        self._written = 0
        self.left_out = 0
        """Lines dropped since the last written one."""

    def take(self, now_s: float) -> int | None:
        """None if no line may be written at `now_s`; otherwise the number of lines dropped since
        the last one.
        """
        if now_s >= self._until_s:
            self._until_s = now_s + self._period_s
            self._written = 0
        if self._written >= self._lines:
            self.left_out += 1
            return None
        self._written += 1
        left_out, self.left_out = self.left_out, 0
        return left_out


class FewLines:
    """Lines of what may fail again and again: at most LINES in PERIOD_S of one text about one
    thing. The next one tells how many were left out.
    """

    LINES = 10
    PERIOD_S = 60.0
    THINGS_MAX = 64
    """Texts and things that are counted apart; more share a budget."""

    def __init__(
        self, logger: logging.Logger, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._budgets: dict[tuple[str, str], LineBudget] = {}

    def warning(self, text: str, *args: object, about: str = "") -> None:
        """As `Logger.warning`."""
        self._log(logging.WARNING, text, args, about)

    def info(self, text: str, *args: object, about: str = "") -> None:
        """As `Logger.info`."""
        self._log(logging.INFO, text, args, about)

    def error(self, text: str, *args: object, about: str = "") -> None:
        """As `Logger.error`."""
        self._log(logging.ERROR, text, args, about)

    def _log(self, level: int, text: str, args: tuple[object, ...], about: str) -> None:
        key = text, about
        if key not in self._budgets and len(self._budgets) >= self.THINGS_MAX:
            key = "", ""
        budget = self._budgets.setdefault(key, LineBudget(self.LINES, self.PERIOD_S))
        left_out = budget.take(self._clock())
        if left_out is None:
            return
        if left_out:
            text, args = f"{text} (and %d like it left out)", (*args, left_out)
        self._logger.log(level, text, *args)


class Seldom(logging.Filter):
    """A logger's filter: the same line at most once in `period_s`, e.g. of attempts that fail for
    hours. `anew` begins a line after which all are news.
    """

    LINES_MAX = 64

    def __init__(self, period_s: float, anew: str) -> None:
        super().__init__()
        self._period_s = period_s
        self._anew = anew
        self._written: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        line = record.getMessage()[:SHOWN_CHARACTERS_MAX]
        if line.startswith(self._anew) or len(self._written) >= self.LINES_MAX:
            self._written.clear()
        written = self._written.get(line)
        if written is not None and record.created - written < self._period_s:
            return False
        self._written[line] = record.created
        return True


class LineFormatter(logging.Formatter):
    """`2026-01-31T10:20:30.123Z INFO geminga_broker.service text`, times in UTC.

    A message is always one line, so that a peer's text can't forge another; only a traceback
    follows on lines of its own. Both are bounded.
    """

    _second = -1, ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line."""
        line = super().formatMessage(record)
        rest = len(line) - LINE_CHARACTERS_MAX
        if rest > 0:
            line = f"{line[:LINE_CHARACTERS_MAX]}... ({rest} more)"
        return in_one_line(line)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The time; what lines of one second have in common is made once."""
        if datefmt:
            return super().formatTime(record, datefmt)
        second, text = self._second
        if second != int(record.created):
            second = int(record.created)
            text = time.strftime(self.default_time_format, self.converter(second))
            self._second = second, text
        form = self.default_msec_format
        return form % (text, record.msecs) if form else text

    def formatException(self, ei: _ExceptionInfo) -> str:
        """The traceback, or the end of a long one."""
        text = super().formatException(ei)
        rest = len(text) - TRACEBACK_CHARACTERS_MAX
        return text if rest <= 0 else f"({rest} more) ...{text[rest:]}"

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
