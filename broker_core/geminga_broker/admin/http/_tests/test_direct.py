"""What comes of a request is what Starlette's layers make of it, by the short way too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from geminga_broker.admin.http.direct import DirectRoutes
from geminga_broker.admin.http.shapes import ShapedRouter


class Wrong(Exception):
    """An error that is answered for."""


class WrongToo(Wrong):
    """And one of its kind."""


done: list[str] = []


async def plain(request: Request) -> Response:
    name = request.path_params["name"]
    return Response(f"{request.method} {name}", headers={"x-a": "b"})


async def nothing(_: Request) -> Response:
    return Response(status_code=204)


async def wrong(_: Request) -> Response:
    raise WrongToo("planted")


async def defect(_: Request) -> Response:
    raise RuntimeError("planted")


async def late(_: Request) -> Response:
    async def made() -> AsyncIterator[bytes]:
        yield b"begun"
        raise Wrong("planted")

    return StreamingResponse(made())


async def afterwards(_: Request) -> Response:
    return Response("x", background=BackgroundTask(done.append, "done"))


async def http_error(_: Request) -> Response:
    raise HTTPException(418, "planted")


ROUTES = [
    Route("/a/{name}", plain, methods=["GET"]),
    Route("/a/{name}", nothing, methods=["PUT"]),
    *[Route(f"/b/{each.__name__}", each) for each in (wrong, defect, late, afterwards, http_error)],
]


async def on_wrong(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{type(error).__name__}: {error}", 409)


async def on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse("none", error.status_code)


async def on_defect(_: Request, error: Exception) -> Response:
    done.append(f"told {type(error).__name__}")
    return PlainTextResponse("defect", 500)


def both() -> tuple[ASGIApp, ASGIApp]:
    """Starlette's application, and ours over it."""
    on_errors = {Wrong: on_wrong, HTTPException: on_http}
    app = Starlette(exception_handlers={**on_errors, Exception: on_defect})
    router = app.router = ShapedRouter(ROUTES)
    return app, DirectRoutes(app, router, on_errors, on_defect)


async def ask(app: ASGIApp, method: str, path: str, fails_at: int = 99) -> list[object]:
    """The messages of the answer, the error, and what was done beside."""
    sent: list[object] = []
    done.clear()

    body: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not body:
            await trio.sleep_forever()
        return body.pop()

    async def send(message: Message) -> None:
        if len(sent) == fails_at:
            raise OSError("planted")
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "headers": [],
        "query_string": b"",
        "root_path": "",
        "client": None,
        "server": None,
    }
    try:
        await app(scope, receive, send)
    except Exception as error:
        sent.append((type(error), str(error)))
    return [*sent, *done]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[(method, "/a/x") for method in ("GET", "HEAD", "PUT", "POST", "OPTIONS")],
        *[("GET", route.path) for route in ROUTES[2:]],
        *[("PUT", "/b/wrong"), ("GET", "/b"), ("GET", "/b/wrong/"), ("GET", "/c/wrong")],
    ],
)
async def test_both_ways_answer_alike(method: str, path: str) -> None:
    theirs, ours = both()
    expected = await ask(theirs, method, path)
    assert expected
    assert await ask(ours, method, path) == expected


async def test_what_the_short_way_is_for() -> None:
    _, ours = both()
    sent = await ask(ours, "GET", "/a/x%2Fy")
    assert sent[1] == {"type": "http.response.body", "body": b"GET x%2Fy"}
    assert (await ask(ours, "GET", "/b/wrong"))[1] == {
        "type": "http.response.body",
        "body": b"WrongToo: planted",
    }


@pytest.mark.parametrize("fails_at", [0, 1])
async def test_an_answer_that_cant_be_sent(fails_at: int) -> None:
    for app in both():
        sent = await ask(app, "GET", "/a/x", fails_at)
        assert sent[-2:] == [(OSError, "planted"), "told OSError"]
