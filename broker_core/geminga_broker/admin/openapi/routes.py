"""Where the description of the REST interface is served (decision 41)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest

if TYPE_CHECKING:
    from geminga_broker.admin.openapi.schemas import Object

BASE = "/admin/v2"
PARTS = {
    "openapi.json": ("/",),
    "swagger.json": ("/admin/v2/",),
    "swaggerlookup.json": ("/lookup/",),
    "swaggertransactions.json": ("/admin/v3/transactions/",),
}
"""The names under `BASE`, and the beginnings of the paths that each describes; those after the
first are Apache's, which publishes documents of these names on its site.
"""


class Description:
    """The document of one broker: made at the first request, in a thread, and kept as bytes."""

    def __init__(self, version: str, routes: Callable[[], Sequence[Route]]) -> None:
        self._version, self._routes = version, routes
        self._made: dict[str, bytes] = {}
        self._turn = trio.Lock()

    async def part(self, name: str) -> bytes:
        """The document of that name."""
        async with self._turn:
            if not self._made:
                make = partial(_parts, tuple(self._routes()), self._version)
                self._made = await trio.to_thread.run_sync(make)
        return self._made[name]

    def routes(self) -> list[Route]:
        """All routes of the family."""

        async def answer(name: str, _request: Request) -> Response:
            """Describe the REST interface as OpenAPI."""
            return rest.encoded(await self.part(name), dict[str, object])

        return [rest.route("GET", f"{BASE}/{name}", partial(answer, name)) for name in PARTS]


def _parts(routes: Sequence[Route], version: str) -> dict[str, bytes]:
    from geminga_broker.admin.openapi.document import document

    whole = document(routes, version)
    return {name: msgspec.json.encode(_part(whole, begins)) for name, begins in PARTS.items()}


def _part(whole: Object, begins: tuple[str, ...]) -> Object:
    paths = whole["paths"]
    assert isinstance(paths, dict)
    return whole | {
        "paths": {path: each for path, each in paths.items() if path.startswith(begins)}
    }
