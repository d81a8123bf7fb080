"""One HTTP request straight into an application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


async def request(
    app: ASGIApp,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Iterable[tuple[str, str]] = (),
    *,
    receive: Receive | None = None,
    **more: object,
) -> Reply:
    """`target` is a path with its query; `receive` gives the body in another way; `more` are
    members of the scope.
    """
    path, _, query = target.partition("?")
    sent: list[Message] = []

    async def whole() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "client": ("1.2.3.4", 5), "server": ("here", 8080),
        "headers": [(name.encode(), value.encode()) for name, value in headers], **more,
    }  # fmt: skip
    await app(scope, receive or whole, send)
    found = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
    return Reply(sent[0]["status"], found, b"".join(part.get("body", b"") for part in sent[1:]))
