"""The way into the console (spec OP-06). Its pages are imported when a browser first asks for one:
a broker starts without them, and its loop doesn't wait while templates are compiled.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from geminga_broker.service import BrokerService
from geminga_runtime.auth.console_login import is_console
from geminga_runtime.single_flight import Late


def with_console(app: ASGIApp, service: BrokerService) -> ASGIApp:
    """The application with the console at `/` and beneath `/console`; all else goes to `app`."""
    if not service.config.console.enabled:
        return app

    def make() -> ASGIApp:
        from geminga_broker.console.app import console_of

        return console_of(app, service)

    console = Late(make)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and is_console(str(scope.get("path", "")))
        await (await console.get() if is_ours else app)(scope, receive, send)

    return wrapped
