"""A browser without a screen: requests straight into the application, with a jar of cookies."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.types import ASGIApp, Receive

from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin.app import create_app
from geminga_broker.config import load_config
from geminga_broker.console.entry import with_console
from geminga_broker.service import BrokerService

_FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{32})"')
HOST = "b:8080"


@dataclass
class Page:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Visitor:
    """One browser."""

    app: ASGIApp
    service: BrokerService
    cookies: dict[str, str] = field(default_factory=dict)
    for_rest: dict[str, str] = field(default_factory=dict)
    """Headers of the tests' own REST calls."""

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        receive: Receive | None = None,
    ) -> Page:
        """One request; cookies that it sets are kept."""
        given = {"host": HOST, **(headers or {})}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        status, found, content = await request(
            self.app, method, target, body, given.items(), receive=receive
        )
        for name, value in found:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
                if not self.cookies[key]:
                    del self.cookies[key]
        return Page(status, dict(found), content.decode())

    async def get(self, path: str) -> Page:
        """A page beneath `/console`."""
        return await self.ask("GET", f"/console{path}")

    async def form_token(self) -> str:
        """That of a page of this browser."""
        found = _FORM_TOKEN.search((await self.get("/login")).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, fields: Mapping[str, str], origin: str = HOST) -> Page:
        """A form that is filled in, of a page of that host."""
        every = {"form_token": await self.form_token(), **fields}
        headers = {
            "origin": f"http://{origin}",
            "content-type": "application/x-www-form-urlencoded",
        }
        return await self.ask("POST", f"/console{path}", urlencode(every).encode(), headers)


@asynccontextmanager
async def visitor(**settings: str) -> AsyncIterator[Visitor]:
    """A browser at a fresh broker."""
    async with open_broker(load_config(None, {}, settings)) as broker:
        app = with_console(create_app(broker.service), broker.service)
        yield Visitor(app, broker.service)
