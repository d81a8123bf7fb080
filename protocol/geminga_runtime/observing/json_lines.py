"""Lines of the log as JSON, for programs that collect them (spec OP-08)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import msgspec

from geminga_runtime.logs import LINE_CHARACTERS_MAX, TRACEBACK_CHARACTERS_MAX, LineFormatter

_PLACES = re.compile(r"(?:\b([a-z_]+)=)?%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")
"""Of a message's text, not of what a peer put into it: places for values, named ones too."""


class JsonFormatter(logging.Formatter):
    """One object a line: `time` (UTC), `level`, `logger`, `message`; `process` where several write
    to one output; `exception` with a traceback and `stack`, where a line has them; and each thing
    that the message names, as `topic=%s` does: `subscription`, `log`, `cursor`, `bundle`,
    `namespace`, `address` and so on.

    Bounds are those of `LineFormatter`.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process
        self._lines = LineFormatter("%(message)s")
        self._encoder = msgspec.json.Encoder()

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        things = dict(named(record))
        line = {
            "time": self._lines.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            **({"process": self._process} if self._process else {}),
            "message": _bounded(record.getMessage()),
            **{name: text for name, text in things.items() if name not in _OWN},
        }
        if record.exc_info:
            line["exception"] = _encodable(self._lines.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = _encodable(record.stack_info[-TRACEBACK_CHARACTERS_MAX:])
        return self._encoder.encode(line).decode()


_OWN = frozenset(("time", "level", "logger", "process", "message", "exception", "stack"))


def named(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """What the message's text names, with the values given for it."""
    if not isinstance(record.args, tuple):
        return
    values = iter(record.args)
    for place in _PLACES.finditer(str(record.msg)):
        if not place[0].endswith("%%"):
            value = next(values, None)
            if place[1]:
                yield place[1], _bounded(str(value))


def _bounded(text: str) -> str:
    rest = len(text) - LINE_CHARACTERS_MAX
    shown = text if rest <= 0 else f"{text[:LINE_CHARACTERS_MAX]}... ({rest} more)"
    return _encodable(shown)


def _encodable(text: str) -> str:
    """Also what can't be UTF-8, e.g. parts of a file's name."""
    return text.encode(errors="backslashreplace").decode()
