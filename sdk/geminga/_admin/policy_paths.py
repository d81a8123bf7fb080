"""Where policies are in the REST interface: the same for all faces and for the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from geminga._admin.declared import decoded_or_none, encoded
from geminga._admin.requests import Request, segment
from geminga_runtime.http.answers import HttpAnswer

T = TypeVar("T")
Query = Sequence[tuple[str, str]]


class Removal(NamedTuple):
    """How a policy is removed: by DELETE of its own path, or in another way."""

    verb: str = "DELETE"
    path: str = ""
    body: bytes | None = None


class PolicyPath(Generic[T]):
    """A policy's path beneath that of its namespace or topic, its type, and how it is set."""

    def __init__(
        self,
        path: str,
        kind: type[T],
        *,
        verb: str = "POST",
        removal: Removal = Removal(),
        in_query: str = "",
        in_path: bool = False,
        is_plain: bool = False,
    ) -> None:
        """It is set by POST or another `verb`. The value is a body of JSON or, if it `is_plain`, a
        text; or it stands in the query, or behind the path.
        """
        self.path = path
        self.kind = kind
        self.verb = verb
        self.removal = removal
        self._in_query = in_query
        self._in_path = in_path
        self._is_plain = is_plain

    def reading(self, base: str, query: Query = ()) -> Request:
        """The request that reads it."""
        return Request("GET", f"{base}/{self.path}", query)

    def setting(self, base: str, value: object, query: Query = ()) -> Request:
        """The request that sets it."""
        path = f"{base}/{self.path}"
        if self._in_query:
            return Request(self.verb, path, [(self._in_query, str(value)), *query])
        if self._in_path:
            return Request(self.verb, f"{path}/{segment(value, self.path)}", query)
        body = str(value).encode() if self._is_plain else encoded(value)
        return Request(self.verb, path, query, body)

    def removing(self, base: str, query: Query = ()) -> Request:
        """The request that removes it."""
        verb, path, body = self.removal
        return Request(verb, f"{base}/{path or self.path}", query, body)

    def value(self, answer: HttpAnswer) -> T | None:
        """The answer to `reading`. Raises AdminError."""
        return decoded_or_none(answer, self.kind, self.path)
