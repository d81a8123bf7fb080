"""One request of a browser to the console: who looks, answers, and what every page has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, unquote

import trio
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from geminga_broker.admin.guard import ORIGINAL_PRINCIPAL
from geminga_broker.admin.rest import raw_body
from geminga_broker.console import browser
from geminga_broker.console.actions import told
from geminga_broker.console.calls import CallFailed, Rest, TopicPath
from geminga_broker.console.render import environment, link
from geminga_broker.service import BrokerService
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE
from geminga_runtime.auth.console_login import CREDENTIAL_COOKIE, credential_in

T = TypeVar("T")
FORM_FIELDS_MAX = 50
FORM_INLINE_BYTES_MAX = 8 * 1024
"""Larger forms are decoded in a thread: a megabyte of `%41` takes 150 ms."""
LISTINGS_MAX = 2
DECODINGS_MAX = 2
_PASSED_ON = ("authorization", ORIGINAL_PRINCIPAL, "x-pulsar-auth-method-name")
"""Credentials of a proxy, or of a program that sends them itself."""


def _fields(body: bytes) -> dict[str, str]:
    """Those of a form. Raises ValueError for too many."""
    text = body.decode("utf-8", "replace")
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))


@dataclass(frozen=True, slots=True)
class Site:
    """The parts that all pages share."""

    app: ASGIApp
    """The REST API."""
    service: BrokerService
    templates: Environment
    listings: trio.CapacityLimiter
    """Lists of topics that are looked through at once; each may have a hundred thousand names."""
    decodings: trio.CapacityLimiter
    """Entries whose messages are decoded at once beside the loop."""

    @classmethod
    def of(cls, app: ASGIApp, service: BrokerService) -> Site:
        """For one broker."""
        listings = trio.CapacityLimiter(LISTINGS_MAX)
        return cls(app, service, environment(), listings, trio.CapacityLimiter(DECODINGS_MAX))


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """A part of a page: its value, or why it can't be shown."""

    value: T | None
    error: str = ""


class Visit:
    """One request."""

    def __init__(self, site: Site, request: Request) -> None:
        self.site = site
        self.request = request
        self.use(_credentials(request))
        known = request.cookies.get(browser.FORM_COOKIE, "")
        self._is_new = not (len(known) == 32 and known.isalnum())
        self.form_token = browser.new_form_token() if self._is_new else known

    def use(self, credentials: dict[str, str]) -> None:
        """Make calls with these credentials from now on."""
        self.credentials = credentials
        self.rest = Rest(self.site.app, self.site.service.peers, self.request, credentials)

    @property
    def needs_login(self) -> bool:
        """Whether the broker authenticates its clients."""
        return self.site.service.authenticator is not None

    @property
    def is_secure(self) -> bool:
        """Whether the browser came by TLS, also before a proxy."""
        headers = self.request.headers
        return "https" in (self.request.url.scheme, headers.get("x-forwarded-proto"))

    async def is_known(self) -> bool:
        """Whether the broker accepts the credentials. Raises CallFailed."""
        if not self.needs_login:
            return True
        if not self.credentials and self.request.scope.get(TLS_PEER_CERTIFICATE) is None:
            return False
        try:
            await self.rest.call("GET", "/admin/v2/brokers/version")
        except CallFailed as error:
            if error.status in (400, 401, 403):
                return False
            raise
        return True

    def parameter(self, name: str) -> str:
        """A decoded part of the path."""
        return unquote(str(self.request.path_params[name]))

    def query(self, name: str) -> str:
        """A parameter of the query; empty without one."""
        return self.request.query_params.get(name, "")

    @property
    def topic(self) -> TopicPath:
        """The topic of the path."""
        domain, tenant = self.parameter("domain"), self.parameter("tenant")
        return TopicPath(domain, tenant, self.parameter("namespace"), self.parameter("topic"))

    async def section(self, kind: type[T], path: str, **query: object) -> Section[T]:
        """A part of a page from one call; its error if that fails."""
        return await attempt(self.rest.get(path, kind, **query))

    async def form(self) -> dict[str, str]:
        """The fields of a posted form. Raises CallFailed for one that isn't the console's own."""
        known = self.request.cookies.get(browser.FORM_COOKIE, "")
        if (reason := browser.refused_unread(self.request.headers, known)) is not None:
            raise CallFailed(403, reason)
        body = await raw_body(self.request)
        try:
            if len(body) <= FORM_INLINE_BYTES_MAX:
                fields = _fields(body)
            else:
                limiter = self.site.decodings
                fields = await trio.to_thread.run_sync(_fields, body, limiter=limiter)
        except ValueError:
            raise CallFailed(400, "The form has too many fields") from None
        given = fields.pop(browser.FORM_FIELD, "")
        if (reason := browser.refusal(self.request.headers, known, given)) is not None:
            raise CallFailed(403, reason)
        return fields

    def page(self, template: str, status: int = 200, **values: object) -> Response:
        """A page of a template."""
        text = self.site.templates.get_template(template).render(
            form_token=self.form_token,
            form_field=browser.FORM_FIELD,
            cluster=self.site.service.config.network.cluster_name,
            broker=self.site.service.addresses.broker_id,
            can_leave=CREDENTIAL_COOKIE in self.request.cookies,
            show_nav=not self.needs_login or bool(self.credentials),
            path=str(self.request.scope["path"]),
            q=self.query("q"),
            did=told(self.query("did"), self.query("id")),
            **values,
        )
        response = HTMLResponse(text, status)
        if self._is_new:
            self.set_cookie(response, browser.FORM_COOKIE, self.form_token)
        return response

    def json(self, value: Mapping[str, object]) -> Response:
        """An answer for the console's script."""
        return JSONResponse(dict(value))

    def failed(self, error: CallFailed) -> Response:
        """The page of an error."""
        if error.status == 401 and self.needs_login and not self.credentials:
            return self.to_login()
        return self.page("error.html", error.status, code=error.status, reason=error.reason)

    def to_login(self) -> Response:
        """The form for a token; it leads back here."""
        path = str(self.request.scope["path"])
        return self.to(link("login", {"next": path}))

    def to(self, path: str) -> Response:
        """Another page, by GET."""
        return RedirectResponse(path, 303)

    def set_cookie(self, response: Response, name: str, value: str) -> None:
        """Set a cookie for the console; an empty value deletes it."""
        text = browser.cookie(name, value, secure=self.is_secure)
        response.headers.append("set-cookie", text)


async def attempt(call: Awaitable[T]) -> Section[T]:
    """A part of a page from a call; its error if that fails."""
    try:
        return Section(await call)
    except CallFailed as error:
        return Section(None, error.reason)


View = Callable[[Visit], Awaitable[Response]]


def _credentials(request: Request) -> dict[str, str]:
    """Headers with credentials: those of the request, else that of the cookie."""
    found: dict[str, str] = {}
    for name in _PASSED_ON:
        values = request.headers.getlist(name)
        if len(values) > 1:
            # The REST API refuses this too: of two, a proxy may have checked the other one.
            return {"authorization": "twice"}
        if values:
            found[name] = values[0]
    cookies = "; ".join(request.headers.getlist("cookie"))
    if "authorization" not in found and (credential := credential_in(cookies)):
        found["authorization"] = credential
    return found
