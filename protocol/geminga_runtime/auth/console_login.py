"""How a browser keeps the credentials of the broker's console, for the broker and for a proxy
before it (spec OP-06). Pure.

The cookie goes to `/console` only, is never seen by scripts, and never comes along when another
site's page leads here (SameSite=Strict). So REST calls don't have it, and can't be forged with it.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

BASE = "/console"
CREDENTIAL_COOKIE = "geminga_console"
COOKIE_BYTES_MAX = 3800
"""Browsers drop cookies of more than 4096 bytes with their name and attributes."""
LOGIN = f"{BASE}/login"
_STATIC = f"{BASE}/static/"


class TooLong(Exception):
    """The credentials don't fit in a cookie."""


def is_console(path: str) -> bool:
    """Whether the console answers this path."""
    return path in ("/", BASE) or path.startswith(f"{BASE}/")


def is_open(method: str, path: str) -> bool:
    """Whether it is a page that needs no credentials: the form that takes them, and its looks."""
    if path == LOGIN:
        return method in ("GET", "HEAD", "POST")
    return method in ("GET", "HEAD") and path.startswith(_STATIC)


def to_cookie(credential: str) -> str:
    """An Authorization header as a cookie's value. Raises TooLong."""
    value = urlsafe_b64encode(credential.encode()).decode().rstrip("=")
    if len(value) > COOKIE_BYTES_MAX:
        raise TooLong("The token is too long for a cookie")
    return value


def from_cookie(value: str) -> str | None:
    """The Authorization header; None for a value that is none."""
    if len(value) > COOKIE_BYTES_MAX:
        return None
    try:
        found = urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    # A line end would begin another header.
    return found if found.isprintable() and found else None


def credential_in(cookies: str) -> str | None:
    """The Authorization header in a Cookie header; None without one, or with several cookies of
    its name: proxy and broker might take different ones.
    """
    found = [
        value.strip()
        for name, _, value in (each.partition("=") for each in cookies.split(";"))
        if name.strip() == CREDENTIAL_COOKIE
    ]
    return from_cookie(found[0].strip('"')) if len(found) == 1 else None
