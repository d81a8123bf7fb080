"""Answers about the request itself, in the form that its client reads: HTML, JSON or text (Jetty's
ErrorHandler, before Apache's REST interface). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

WITH_PAGE = ("GET", "POST", "HEAD")
"""Requests by other methods get no body."""

ACCEPT_CHARACTERS_MAX = 2000
"""More of what a client accepts isn't looked at."""
URL_SHOWN_MAX = 2000
"""Characters of a path that are repeated."""


def error_page(request: Request, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The answer with that status."""
    if request.method not in WITH_PAGE:
        return Response(status_code=status, headers=dict(headers or {}))
    reason = HTTPStatus(status).phrase
    url = str(request.scope["path"])[:URL_SHOWN_MAX]
    kind, body = _body(request.headers.get("accept", ""), status, reason, url)
    return Response(body, status, dict(headers or {}), kind)


def _body(accept: str, status: int, reason: str, url: str) -> tuple[str, bytes]:
    """The type and the body."""
    wanted = [
        part.partition(";")[0].strip().lower() for part in accept[:ACCEPT_CHARACTERS_MAX].split(",")
    ]
    for each in wanted:
        if each in ("text/html", "text/*", "*/*", ""):
            break
        if each in ("application/json", "text/json"):
            fields = {"message": reason, "url": url, "status": str(status)}
            return "application/json", msgspec.json.encode(fields)
        if each == "text/plain":
            text = (
                f"HTTP ERROR {status} {reason}\nURI: {url}\nSTATUS: {status}\nMESSAGE: {reason}\n"
            )
            return "text/plain", text.encode()
    title = f"{status} {reason}"
    rows = "".join(
        f"<tr><th>{name}:</th><td>{escape(value)}</td></tr>\n"
        for name, value in (("URI", url), ("STATUS", str(status)), ("MESSAGE", reason))
    )
    page = (
        f"<html>\n<head><title>Error {title}</title></head>\n<body><h2>HTTP ERROR {title}</h2>\n"
        f"<table>\n{rows}</table>\n</body>\n</html>\n"
    )
    return "text/html", page.encode()
