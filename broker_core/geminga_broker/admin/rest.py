"""The common part of all admin routes: responses, errors, bodies (spec OP-03).

Errors are Apache's `{"reason": ...}`; the response to an invalid body is 400 in plain text, as in
Apache.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast
from urllib.parse import unquote, unquote_plus

import msgspec
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_bookie.errors import BookkeeperError, NotEnoughBookies
from geminga_broker.admin import jackson
from geminga_broker.admin.http import types
from geminga_broker.admin.http.off_loop import off_the_loop
from geminga_broker.admin.http.pages import error_page
from geminga_broker.change_events.api import EventsUnavailable, UnfitPolicy
from geminga_broker.errors import AboveLimit, BrokerError
from geminga_broker.limits import check_properties, check_topic
from geminga_broker.log.api import LogClosed, LogError, LogFenced, TooFewBookies
from geminga_broker.web.settings import WHOLE_BODY
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.logs import FewLines, shown
from geminga_runtime.metadata.api import BadVersion, MetadataError

_log = logging.getLogger(__name__)
_few_lines = FewLines(_log, time.monotonic)

T = TypeVar("T")

BODY_S = 30.0
"""Timeout of receiving a body."""
BODY_BYTES_MAX = 1 << 20
"""Largest request body that the admin API reads."""
Handler = Callable[[Request], Awaitable[Response]]

STATUS_BY_CODE: dict[int, int] = {
    ServerError.TopicNotFound: 404,
    ServerError.SubscriptionNotFound: 404,
    ServerError.ConsumerNotFound: 404,
    ServerError.InvalidTopicName: 412,
    ServerError.AuthenticationError: 401,
    ServerError.AuthorizationError: 401,
    ServerError.ServiceNotReady: 503,
    ServerError.TooManyRequests: 503,
    ServerError.ConsumerBusy: 412,
    ServerError.ProducerBusy: 412,
    ServerError.NotAllowedError: 405,
    ServerError.TopicTerminatedError: 405,
}
"""HTTP status of broker errors that handlers don't map; others are 500."""


class RestError(Exception):
    """The response has this status and `{"reason": ...}`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Redirect(Exception):
    """The response is 307 to this location."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class Refused(Exception):
    """The request itself is refused, whatever it asks for: this status, in the form that the client
    reads.
    """

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class _BadBody(Exception):
    """The request's body is not valid."""


def ok(value: object, kind: object = object) -> Response:
    """200 with a JSON body, `null` included; the description of REST reads `kind` from the call."""
    del kind
    return Response(msgspec.json.encode(value), media_type="application/json")


def accepted(value: object, kind: object = object) -> Response:
    """202 with a JSON body."""
    del kind
    return Response(msgspec.json.encode(value), 202, media_type="application/json")


def encoded(body: bytes, kind: object = object) -> Response:
    """The same of a body that is JSON already."""
    del kind
    return Response(body, media_type="application/json")


def ok_or_empty(value: object, kind: object = object) -> Response:
    """The same, or without a body for None."""
    del kind
    return Response() if value is None else ok(value)


def text_as_json(text: str) -> Response:
    """200 with the bare text, which Apache's server says is JSON."""
    return Response(text, media_type="application/json")


def no_content() -> Response:
    """204."""
    return Response(status_code=204)


async def read_body(request: Request, kind: type[T]) -> T | None:
    """The body as type `kind`, as lenient as in Apache's broker (`jackson`); None without a body,
    or for null.
    """
    return cast(T | None, await read_union(request, kind))


async def read_union(request: Request, *kinds: type) -> object:
    """The body as the first of these types that fits; None as in `read_body`. Raises Refused for
    a body that isn't sent as JSON.
    """
    return await decoded(await json_body(request, *kinds), *kinds)


async def json_body(request: Request, *kinds: type) -> bytes:
    """The bytes of a body that will be read as one of these types. Raises as `read_union`."""
    body = await raw_body(request)
    content_type = request.headers.get("content-type")
    path = str(request.scope["path"])
    if status := types.refusal(path, content_type, kinds, bool(body)):
        raise Refused(status)
    return body


async def decoded(body: bytes, *kinds: type) -> object:
    """A body as the first of these types that fits; None as in `read_body`."""
    return await off_the_loop(len(body), partial(_bound, body, kinds))


def _bound(body: bytes, kinds: tuple[type, ...]) -> object:
    if not body.strip():
        return None
    refusal = ""
    for kind in kinds:
        try:
            return jackson.decode(body, kind)
        except jackson.Unbindable as error:
            refusal = refusal or str(error)
    raise _BadBody(refusal)


async def raw_body(request: Request, kind: object = object) -> bytes:
    """The bytes of the body, to be read once. Raises RestError 413, 408 for a body that takes
    longer than `BODY_S`, and 400 for one that breaks off.
    """
    take: Callable[[], bytes | None] | None = request.scope.get(WHOLE_BODY)
    if take is not None and (whole := take()) is not None:
        _check_size(len(whole))
        return whole
    body = bytearray()
    try:
        with trio.fail_after(BODY_S):
            async for chunk in request.stream():
                body += chunk
                _check_size(len(body))
    except trio.TooSlowError:
        raise RestError(408, f"The request's body did not come within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise RestError(400, "The request's body broke off") from None
    del kind  # for the description
    return bytes(body)


def _check_size(body_bytes: int) -> None:
    if body_bytes > BODY_BYTES_MAX:
        raise RestError(413, f"Request body is larger than {BODY_BYTES_MAX} bytes")


def without_nulls(properties: dict[str, str] | None) -> dict[str, str] | None:
    """The same properties. Raises RestError 400 for a null one."""
    for name, value in (properties or {}).items():
        if value is None:
            raise RestError(400, f"Property {name[:80]} is null: leave it out")
    return properties


def bad_body(text: str) -> Exception:
    """The error for an invalid body: 400 in plain text."""
    return _BadBody(text)


EMPTY_BODY = "The request entity cannot be empty."


async def required_body(request: Request, kind: type[T]) -> T:
    """As `read_body`. Raises the error for an invalid body if there is none."""
    value = await read_body(request, kind)
    if value is None:
        raise bad_body(EMPTY_BODY)
    return value


def parameter(request: Request, name: str) -> str:
    """A decoded part of the path."""
    return unquote(str(request.path_params[name]))


def subscription_of(request: Request) -> str:
    """The subscription of the path. That of a topic is decoded twice, with `+` for a space, as
    Apache's clients encode it twice.
    """
    text = parameter(request, "subscription")
    return unquote_plus(text) if "topic" in request.path_params else text


def flag(request: Request, name: str, default: bool = False) -> bool:
    """A boolean of the query string."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def query_number(request: Request, name: str, default: int) -> int:
    """A number of the query string. Raises Refused with 404 for another text, as Jersey answers."""
    text = request.query_params.get(name)
    try:
        return default if text is None else int(text)
    except ValueError:
        raise Refused(404) from None


def namespace_of(request: Request) -> str:
    """`tenant/namespace` of the path."""
    return f"{parameter(request, 'tenant')}/{parameter(request, 'namespace')}"


def topic_of(request: Request, domain: str) -> TopicName:
    """The topic of the path. Raises RestError 412 for an invalid name."""
    full = f"{domain}://{namespace_of(request)}/{parameter(request, 'topic')}"
    try:
        check_topic(full)
        name = TopicName.parse(full)
        if name.is_partition:
            _ = name.partitioned_base  # which `-partition-1` has none of
        return name
    except (BrokerError, LocalProtocolError) as error:
        raise RestError(412, f"Topic name is not valid: {error}") from None


NEED_PERSISTENT = "Need to provide a persistent topic name"


def persistent_topic_of(request: Request, domain: str) -> TopicName:
    """The same; RestError 406 for one that isn't persistent, too."""
    name = topic_of(request, domain)
    if not name.is_persistent:
        raise RestError(406, NEED_PERSISTENT)
    return name


def parsed_topic(text: str) -> TopicName:
    """A topic by its full name, or by its name in `public/default`. Raises RestError 412."""
    try:
        return TopicName.parse(text)
    except LocalProtocolError as error:
        raise RestError(412, f"Topic name is not valid: {error}") from None


def properties_of(given: dict[str, str] | None) -> dict[str, str]:
    """Properties of a body. Raises RestError 412 if they are too many or too long."""
    given = given or {}
    try:
        check_properties("Properties", given.items())
    except BrokerError as error:
        raise RestError(412, str(error)) from None
    return given


def status_of(error: Exception) -> int:
    """The status of the response to an error of a handler, whatever its text is."""
    if isinstance(error, RestError | Refused):
        return error.status
    if isinstance(error, Redirect):
        return 307
    if isinstance(error, UnfitPolicy | _BadBody):
        return 400
    if isinstance(error, AboveLimit | BadVersion):
        return 409
    if isinstance(error, BrokerError) and not isinstance(error, EventsUnavailable):
        return STATUS_BY_CODE.get(error.code, 500)
    unavailable = LogClosed | LogFenced | TooFewBookies | NotEnoughBookies
    return 503 if isinstance(error, unavailable) else 500


async def on_rest_error(request: Request, error: Exception) -> Response:
    """The response to an error of EXCEPTION_HANDLERS, but a bad body."""
    status, reason = status_of(error), str(error)
    if isinstance(error, RestError):
        reason = error.reason
    elif isinstance(error, LogClosed | LogFenced):
        reason = f"The topic was unloaded meanwhile: {error}"
    elif isinstance(error, BadVersion):
        reason = "Concurrent modification"
    elif not isinstance(error, BrokerError):
        kind = type(error).__name__
        reason = reason if status == 503 else f"{kind}: {error}"
        # Clients try again and again.
        line = "%s %s: %s"
        _few_lines.warning(line, request.method, shown(request.scope["path"]), reason, about=kind)
    body = msgspec.json.encode({"reason": reason})
    return Response(body, status_code=status, media_type="application/json")


async def on_bad_body(_request: Request, error: Exception) -> Response:
    """400 in plain text."""
    return Response(str(error), status_code=400, media_type="text/plain")


async def on_defect(request: Request, error: Exception) -> Response:
    """500 for what no handler expects, which is logged with its place."""
    _log.error("defect: %s %s", request.method, shown(request.scope["path"]), exc_info=error)
    body = msgspec.json.encode({"reason": f"Internal error: {type(error).__name__}"})
    return Response(body, status_code=500, media_type="application/json")


async def on_redirect(_request: Request, error: Exception) -> Response:
    """307 without a body, as Apache's."""
    assert isinstance(error, Redirect)
    return Response(status_code=307, headers={"location": error.location})


async def on_refused(request: Request, error: Exception) -> Response:
    """The page with that status."""
    assert isinstance(error, Refused)
    return error_page(request, error.status)


EXCEPTION_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    RestError: on_rest_error,
    Redirect: on_redirect,
    Refused: on_refused,
    UnfitPolicy: on_bad_body,
    BrokerError: on_rest_error,
    LogError: on_rest_error,
    BookkeeperError: on_rest_error,
    MetadataError: on_rest_error,
    _BadBody: on_bad_body,
}
"""The application's handlers of exceptions."""


async def answered(request: Request, handler: Handler) -> Response:
    """The handler's response, or that to its error."""
    try:
        return await handler(request)
    except tuple(EXCEPTION_HANDLERS) as error:
        found = error
    respond = next(made for kind, made in EXCEPTION_HANDLERS.items() if isinstance(found, kind))
    return await respond(request, found)


def route(method: str, path: str, handler: Handler) -> Route:
    """One method at one path."""
    return Route(path, handler, methods=[method])


def at(path: str, **handlers: Handler) -> list[Route]:
    """Several methods at one path."""
    return [route(method.upper(), path, handler) for method, handler in handlers.items()]
