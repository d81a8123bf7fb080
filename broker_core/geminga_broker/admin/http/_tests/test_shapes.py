"""Which routes are tried for a path."""

from __future__ import annotations

import random

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin.app import routes_of
from geminga_broker.admin.http import shapes
from geminga_broker.admin.http.shapes import ShapedRouter

WORDS = ("", "public", "stats", "persistent", "0x00000000_0xffffffff", "a%2Fb", "{topic}")


def first(router: Router, path: str, method: str) -> tuple[object, object]:
    """The route that takes a request, and the one of its path with other methods."""
    whole = partial = None
    for route in router.routes:
        match, _ = route.matches({"type": "http", "path": path, "method": method})
        if match is Match.FULL and whole is None:
            whole = route
        elif match is Match.PARTIAL and partial is None:
            partial = route
    return whole, partial


@pytest.mark.slow
async def test_the_same_route_is_found_as_by_trying_all() -> None:
    async with open_broker() as broker:
        routes = routes_of(broker.service)
    every, shaped = Router(routes), ShapedRouter(routes)
    chance = random.Random(1)
    found = 0
    for route in routes:
        for _ in range(3):
            parts = [
                chance.choice(WORDS) if part.startswith("{") or chance.random() < 0.05 else part
                for part in route.path.split("/")
            ]
            path = "/".join(parts)
            method = chance.choice(["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS"])
            expected = first(every, path, method)
            assert first(shaped.of(path), path, method) == expected, path
            found += expected[0] is not None
    assert found > 100, "hardly a path led anywhere"
    few = [len(shaped.of(route.path).routes) for route in routes]
    assert max(few) < 20, "too many routes are tried"


def test_what_is_remembered_is_bounded() -> None:
    async def answer(_: Request) -> Response:
        return Response()

    names = [f"w{number}" for number in range(10)]
    routes = [Route(f"/{a}/{{b}}/{{c}}/{{d}}", answer) for a in names]
    routes += [Route(f"/{{a}}/{b}/{c}/{d}", answer) for b, c, d in zip(*[names] * 3, strict=True)]
    router = ShapedRouter(routes)
    for number in range(10_000):
        parts = [names[number // 10**place % 10] for place in range(4)]
        path = "/" + "/".join(parts)
        assert router.of(path).routes, path
        assert len(router._known) <= shapes.SHAPES_MAX
