"""JSON text for a page, bounded while it is made (pure): a short payload can stand for gigabytes of
text, by a long name that its schema repeats, or by indentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping


class Enough(Exception):
    """The text is as long as it may be; the rest of the value isn't looked at."""


class JsonText:
    """Indented text of not more than `limit` characters. Every method raises Enough once they are
    written, so what fills it ends, however deep it is: each level is indented further.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: list[str] = []
        self._counts: list[int] = []
        """Items so far of the arrays and objects that are open."""

    @property
    def text(self) -> str:
        """What has been written."""
        return "".join(self._parts)

    def write(self, text: str) -> None:
        """These characters as they are."""
        self._parts.append(text[: self._left])
        if len(text) > self._left:
            self._left = 0
            raise Enough
        self._left -= len(text)

    def string(self, text: str) -> None:
        """A string."""
        self.write(quoted(text[: self._left]))

    def begin(self, bracket: str) -> None:
        """An array or an object from here on."""
        self.write(bracket)
        self._counts.append(0)

    def item(self) -> None:
        """The next item of what is open."""
        comma = "," if self._counts[-1] else ""
        self.write(f"{comma}\n{'  ' * len(self._counts)}")
        self._counts[-1] += 1

    def end(self, bracket: str) -> None:
        """The array or object ends."""
        if self._counts.pop():
            self.write("\n" + "  " * len(self._counts))
        self.write(bracket)

    def value(self, value: object) -> None:
        """A value that `json.loads` has made."""
        if isinstance(value, str):
            self.string(value)
        elif isinstance(value, Mapping):
            self.begin("{")
            for name, each in value.items():
                self.item()
                self.string(str(name))
                self.write(": ")
                self.value(each)
            self.end("}")
        elif isinstance(value, list):
            self.begin("[")
            for each in value:
                self.item()
                self.value(each)
            self.end("]")
        else:
            self.write(json.dumps(value))


def quoted(text: str) -> str:
    """A JSON string; halves of surrogate pairs, which no answer could have, stay escaped."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
