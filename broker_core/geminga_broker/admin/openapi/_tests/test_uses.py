"""What is read from the text of a handler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from geminga_broker.admin import rest
from geminga_broker.admin.openapi.uses import JSON, PAGE, REASON, TEXT, Query, Reader, Uses
from geminga_broker.admin.topics.subscriptions import number_of

NAMED = "named"


class Body(msgspec.Struct):
    size: int = 0


@dataclass(frozen=True)
class Row:
    kind: type
    absent: int = 200
    applied: object = None
    required: bool = False


def uses(handler: object) -> Uses:
    return Reader().uses(handler)


def test_queries_of_every_kind_and_numbers_in_the_path() -> None:
    async def handler(request: Request) -> Response:
        rest.flag(request, "force")
        rest.query_number(request, NAMED, 0)
        if asked := request.query_params.getlist("topics"):
            del asked
        number_of(request, "count")
        return rest.ok(request.query_params.get("mode", "ALL").upper())

    found = uses(handler)
    kinds = {
        "force": Query.FLAG, NAMED: Query.NUMBER, "topics": Query.TEXTS, "mode": Query.TEXT
    }  # fmt: skip
    assert found.query == kinds
    assert found.numbers == {"count"}
    assert found.answers == {200: {JSON}, 404: {PAGE}}


async def _refused(request: Request, status: int = 405) -> None:
    if rest.flag(request, "strict"):
        raise rest.RestError(status, "no")


def test_functions_are_followed_with_what_they_are_given() -> None:
    async def handler(request: Request) -> Response:
        await _refused(request)
        await _refused(request, 422)
        await _refused(request, status=406)
        return rest.no_content()

    found = uses(handler)
    assert set(found.answers) == {204, 405, 422, 406}
    assert found.query == {"strict": Query.FLAG}
    assert found.kinds[405] == [REASON]


def _endpoint(row: Row) -> rest.Handler:
    async def handler(request: Request) -> Response:
        value: object = await rest.read_body(request, row.kind)
        if row.applied is not None and rest.flag(request, "applied"):
            return rest.ok(value)
        if value is None and row.required:
            raise rest.bad_body("no")
        return Response(status_code=row.absent)

    return handler


def test_the_row_that_a_handler_is_made_for_counts() -> None:
    plain = uses(_endpoint(Row(int, absent=204)))
    assert (plain.bodies, plain.query, plain.answers) == ([int], {}, {204: {""}})
    found = uses(_endpoint(Row(Body, applied=max, required=True)))
    assert (found.bodies, found.query) == ([Body], {"applied": Query.FLAG})
    assert found.answers == {200: {"", JSON}, 400: {TEXT}}


async def _brought(handler: rest.Handler, domain: str, request: Request) -> Response:
    if domain == "persistent" and rest.flag(request, "stored"):
        raise rest.Refused(404)
    if domain != "persistent":
        rest.flag(request, "unstored")
    return await handler(request)


def test_an_endpoint_that_calls_the_handler() -> None:
    async def handler(request: Request) -> Response:
        await rest.required_body(request, cast(type[str], Literal["a", "b"]))
        return PlainTextResponse("x")

    found = uses(partial(_brought, handler, "persistent"))
    assert found.query == {"stored": Query.FLAG}
    assert found.answers == {404: {PAGE}, 200: {TEXT}}
    assert found.bodies == [Literal["a", "b"]]
    assert found.body_required
    assert uses(partial(_brought, handler, "non-persistent")).query == {"unstored": Query.FLAG}


def test_unions_and_lists_are_kinds_of_bodies() -> None:
    async def handler(request: Request) -> Response:
        await rest.read_union(request, int, Body)
        await rest.read_body(request, list[str])
        await rest.read_body(request, dict[str, Body])
        return rest.ok_or_empty(None)

    found = uses(handler)
    assert found.bodies == [int, Body, list[str], dict[str, Body]]
    assert found.answers == {200: {JSON, ""}}


async def _even(request: Request, n: int = 0) -> None:
    rest.flag(request, "even")
    await _odd(request)


async def _odd(request: Request) -> None:
    rest.flag(request, "odd")
    await _even(request)


def test_a_circle_of_calls_ends() -> None:
    async def handler(request: Request) -> Response:
        await _even(request)
        return rest.no_content()

    assert set(uses(handler).query) == {"even", "odd"}


def test_what_is_no_function_of_ours_uses_nothing() -> None:
    assert uses(print) == Uses()
    assert uses(object()) == Uses()
