"""Logging in and out: the token goes into a cookie that only the console is sent."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.responses import Response

from geminga_broker.console import browser
from geminga_broker.console.calls import CallFailed
from geminga_broker.console.render import link
from geminga_broker.console.site import Visit
from geminga_runtime.auth.console_login import (
    BASE,
    CREDENTIAL_COOKIE,
    TooLong,
    from_cookie,
    to_cookie,
)

BAD_LOGIN = "The broker doesn't accept these credentials."


async def _form(visit: Visit) -> Response:
    # Also where this broker needs none: a proxy before it may.
    return visit.page("login.html", next=_inside(visit.query("next")), error="")


async def _login(visit: Visit) -> Response:
    fields = await visit.form()
    token, user = fields.get("token", "").strip(), fields.get("user", "").strip()
    if bool(token) == bool(user):
        return _again(visit, fields, "Give either a token, or a user and a password.")
    credential = browser.bearer(token) if token else browser.basic(user, fields.get("password", ""))
    try:
        value = to_cookie(credential)
    except (TooLong, UnicodeEncodeError) as error:
        return _again(visit, fields, f"{error}.")
    if from_cookie(value) != credential:
        return _again(visit, fields, "This can't be a token.")
    visit.use({"authorization": credential})
    try:
        known = await visit.is_known()
    except CallFailed as error:
        return _again(visit, fields, error.reason)
    if not known:
        return _again(visit, fields, BAD_LOGIN, 401)
    response = visit.to(_inside(fields.get("next", "")))
    visit.set_cookie(response, CREDENTIAL_COOKIE, value)
    return response


def _again(visit: Visit, fields: dict[str, str], error: str, status: int = 400) -> Response:
    return visit.page("login.html", status, next=_inside(fields.get("next", "")), error=error)


def _inside(path: str) -> str:
    """A page of the console; the first one for anything else, which could lead to another site."""
    is_inside = path.startswith(f"{BASE}/") and path.isascii() and path.isprintable()
    if any(unquote(part) in (".", "..") for part in path.partition("?")[0].split("/")):
        return BASE
    return path if is_inside and "\\" not in path and "//" not in path else BASE


async def _logout(visit: Visit) -> Response:
    await visit.form()
    response = visit.to(link("login"))
    visit.set_cookie(response, CREDENTIAL_COOKIE, "")
    return response


OPEN_VIEWS = (
    ("GET /login", _form),
    ("POST /login", _login),
    ("POST /logout", _logout),
)
"""Pages that need no credentials."""
