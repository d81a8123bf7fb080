"""Cutting a text into SQL statements at its semicolons. Pure."""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"""
      '(?:[^'\\]|\\.|'')*'       # a text
    | "(?:[^"\\]|\\.|"")*"       # a text, or a name
    | `(?:[^`]|``)*`             # a name
    | --[^\n]*                   # comments
    | /\*.*?\*/
    | ;
    | [^'"`;/-]+
    | [/-]
    | (?P<open>['"`].*)          # not ended
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that a semicolon ends, and what follows the last of them: the beginning of
    one that isn't ended. Comments alone are no statement. Semicolons in texts, quoted names and
    comments end nothing.
    """
    ended: list[str] = []
    start = at = 0
    has_words = False
    while at < len(text):
        if text.startswith("/*", at) and text.find("*/", at + 2) < 0:
            break
        match = _PIECE.match(text, at)
        assert match is not None, "every character begins some piece"
        piece = match[0]
        if match["open"]:
            break
        at = match.end()
        if piece == ";":
            if has_words:
                ended.append(text[start : at - 1].strip())
            start, has_words = at, False
        elif not piece.startswith(("--", "/*")) and not piece.isspace():
            has_words = True
    rest = text[start:].strip()
    return ended, rest if has_words or at < len(text) else ""
