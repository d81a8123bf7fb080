"""Which requests may go on to a broker, by method and path (spec PX-06, PX-24). Pure.

A broker decodes and normalises a path by rules of its own: `/%6detrics/`, `//metrics` and
`/x/..;/metrics` are one page to Apache's Jetty. So nothing is decided by a path's first spelling.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from geminga_proxy.http.errors import HttpError

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH")
"""TRACE is not among them: a broker would answer with the proxy's own credentials."""
NOT_PASSED_ON = frozenset({b"metrics", b"status.html"})
"""Pages that a broker shows without asking who wants them; the proxy has its own."""
_DOTS = (b".", b"..")


def check_method(method: bytes) -> None:
    """Raises HttpError 405. Letters of the other case count as another method (RFC 9110, 9.1)."""
    if method not in METHODS:
        raise HttpError(405, "Method not allowed", ((b"allow", b", ".join(METHODS)),))


def check_path(path: bytes) -> None:
    """Raises HttpError 400 for a path that servers normalise differently, 404 for a page of
    brokers that is not for clients.
    """
    decoded = unquote_to_bytes(path)
    if any(byte < 0x20 or byte == 0x7F for byte in decoded):
        raise HttpError(400, "Bad request: a control character in the path")
    # What follows a semicolon is a parameter to Jetty, not a part of the name.
    parts = [part.partition(b";")[0] for part in decoded.replace(b"\\", b"/").split(b"/")]
    if any(part in _DOTS for part in parts):
        raise HttpError(400, "Bad request: the path is not normalised")
    first = next((part for part in parts if part), b"")
    if first.lower() in NOT_PASSED_ON:
        raise HttpError(404, "Not found")
