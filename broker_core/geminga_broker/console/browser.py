"""What a browser sends and is told: cookies, headers that protect it, and the proof that a form is
the console's own (pure). For the cookie of credentials see `geminga_runtime.auth.console_login`.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import urlsplit

from geminga_runtime.auth.console_login import BASE

FORM_COOKIE = "geminga_console_form"
FORM_FIELD = "form_token"
HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with that, browsers send "Origin: null" with forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer."""


def bearer(token: str) -> str:
    """The Authorization header of a token."""
    return f"Bearer {token}"


def basic(user: str, password: str) -> str:
    """The Authorization header of a user and a password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def cookie(name: str, value: str, *, secure: bool, path: str = BASE) -> str:
    """A Set-Cookie header; an empty value deletes the cookie."""
    parts = [f"{name}={value}", f"Path={path}", "HttpOnly", "SameSite=Strict"]
    if secure:
        parts.append("Secure")
    if not value:
        parts.append("Max-Age=0")
    return "; ".join(parts)


def new_form_token() -> str:
    """A token that no other site's page knows."""
    return secrets.token_hex(16)


def refusal(headers: Mapping[str, str], in_cookie: str, in_form: str) -> str | None:
    """Why a POST is not one of the console's own forms; None if it is one."""
    if (reason := refused_unread(headers, in_cookie)) is not None:
        return reason
    return None if hmac.compare_digest(in_cookie.encode(), in_form.encode()) else TOO_OLD


def refused_unread(headers: Mapping[str, str], in_cookie: str) -> str | None:
    """The same without a look at the form's body; None if it may be one.

    `Sec-Fetch-Site` and `Origin` are set by the browser, whatever a page wants; the token stands in
    a cookie that other sites' pages can neither read nor send. Over plain HTTP browsers leave
    `Sec-Fetch-Site` out; and a proxy of others may hide the host that `Origin` must name.
    """
    site = headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        return OTHER_SITE
    if site is None:
        own = {headers.get("host"), headers.get("x-forwarded-host")} - {None, ""}
        try:
            origin = urlsplit(headers.get("origin", "")).netloc
        except ValueError:
            return OTHER_SITE
        if origin not in own:
            return OTHER_SITE
    return None if in_cookie else TOO_OLD


TOO_OLD = "The form is too old, or not the console's: open the page anew"
OTHER_SITE = "The request doesn't come from the console's own page"
