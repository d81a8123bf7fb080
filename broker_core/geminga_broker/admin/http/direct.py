"""Requests to their handlers without Starlette's layers, which cost more than a short call itself.

Starlette's layers are there for what they are needed for: unknown paths and methods, errors, and
answers that may fail while they are made. What comes of a request is the same by either way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from geminga_broker.admin.http.shapes import ShapedRouter

OnError = Callable[[Request, Exception], Awaitable[Response]]
_ANSWER = "geminga.answer"


class DirectRoutes:
    """An application over another one, Starlette's, which has the same routes and handlers."""

    def __init__(
        self,
        app: ASGIApp,
        router: ShapedRouter,
        on_errors: Mapping[type[Exception], OnError],
        on_defect: OnError,
    ) -> None:
        """`on_errors` answer for errors of these kinds, `on_defect` for all others."""
        self._app = app
        self._router = router
        self._on_defect = on_defect
        self._layers = ServerErrorMiddleware(
            ExceptionMiddleware(_answer, handlers=on_errors), handler=on_defect
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self._router.taken_by(scope) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = cast(Response, await route.endpoint(request))
        except Exception as error:
            scope[_ANSWER] = _Failure(error)
        else:
            if type(response) is Response and response.background is None:
                await self._send(request, response, send)
                return
            scope[_ANSWER] = response
        await self._layers(scope, receive, send)

    async def _send(self, request: Request, response: Response, send: Send) -> None:
        """An answer that is made already: what fails here is begun."""
        try:
            await response(request.scope, request.receive, send)
        except Exception as error:
            await self._on_defect(request, error)  # noqa: ASYNC120
            raise


class _Failure:
    """Raises what a handler raised."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise self._error


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """What `DirectRoutes` has found, within the layers."""
    await cast(ASGIApp, scope[_ANSWER])(scope, receive, send)
