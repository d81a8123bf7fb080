"""Java properties files, the form of Apache's `broker.conf` (spec OP-07).

Follows `java.util.Properties.load`: `#` and `!` start comments, a key ends at `=`, `:` or blank
space, a backslash at the end of a line joins the next one, `\\uXXXX` and the usual escapes are
decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file; a key given twice keeps its last value, as in Java."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None:
            values[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, continuations joined."""
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _PLAIN_ESCAPES.get(code, code)

    return _ESCAPE.sub(replace, text)
