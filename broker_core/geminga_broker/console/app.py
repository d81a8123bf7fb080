"""The console's routes as one application (spec OP-06)."""

from __future__ import annotations

import logging
from importlib.resources import files

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geminga_broker.admin.rest import RestError
from geminga_broker.console import (
    browser,
    cluster_pages,
    doing,
    live,
    messages,
    signing_in,
    topic_pages,
)
from geminga_broker.console.calls import CallFailed
from geminga_broker.console.site import Site, View, Visit
from geminga_broker.service import BrokerService
from geminga_runtime.auth.console_login import BASE

_log = logging.getLogger(__name__)

STATIC: dict[str, str] = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def console_of(app: ASGIApp, service: BrokerService) -> ASGIApp:
    """The pages, which make their calls of `app`. Reads files and compiles all templates: for a
    thread.
    """
    site = Site.of(app, service)
    pages = _pages(site)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("raw_path"):
            # As it was sent: an encoded slash doesn't end a topic's name.
            scope = dict(scope, path=scope["raw_path"].decode("latin-1").partition("?")[0])
        await pages(scope, receive, _safely(send))

    return wrapped


def _safely(send: Send) -> Send:
    """Adds the headers that protect a browser."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in browser.HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


def _pages(site: Site) -> Starlette:
    folder = files("geminga_broker.console").joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    async def static(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name not in contents:
            return PlainTextResponse("Not found", 404)
        return Response(contents[name], headers={"content-type": STATIC[name]})

    routes = [
        Route("/", _to_start, methods=["GET"]),
        Route(f"{BASE}/", _to_start, methods=["GET"]),
        Route(f"{BASE}/static/{{name}}", static, methods=["GET"]),
    ]
    for path, view in signing_in.OPEN_VIEWS:
        routes.append(_route(site, path, view, is_open=True))
    for path, view in (
        *cluster_pages.VIEWS,
        *topic_pages.VIEWS,
        *messages.VIEWS,
        *live.VIEWS,
        *doing.VIEWS,
    ):
        routes.append(_route(site, path, view))
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


def _route(site: Site, path: str, view: View, *, is_open: bool = False) -> Route:
    """A page; `path` is a method and what follows the console's base."""
    method, _, rest = path.partition(" ")

    async def endpoint(request: Request) -> Response:
        visit = Visit(site, request)
        try:
            if not is_open and not await visit.is_known():
                return visit.to_login() if method == "GET" else visit.failed(_NO_LOGIN)
            return await view(visit)
        except CallFailed as error:
            return visit.failed(error)
        except RestError as error:
            return visit.failed(CallFailed(error.status, error.reason))
        except Exception:
            _log.exception("defect: %s %s", request.method, path)
            return visit.failed(CallFailed(500, "The console has a defect; see the broker's log"))

    return Route(BASE + rest, endpoint, methods=[method])


_NO_LOGIN = CallFailed(401, "Log in first: the broker doesn't accept these credentials")


async def _to_start(_request: Request) -> Response:
    return Response(status_code=302, headers={"location": BASE})
