"""Calls of a broker's own REST routes on topics and bundles, wherever these are: here by the
route's handler, elsewhere over the network (Apache calls itself through its admin client, too).

A call on a partitioned topic is made of one for each partition, a call on a namespace of one for
each bundle. What a caller may was checked for the whole; the parts are called with the broker's own
rights.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast
from urllib.parse import quote

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

from geminga_broker.admin import rest
from geminga_broker.admin.owners import AUTHORITATIVE
from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName
from geminga_runtime.json_text import BadJson, read_json

CONCURRENT_MAX = 16
"""Parts of one call that run at a time."""
NO_OWNER_STATUS = 412
NO_OWNER = "Failed to find ownership for ServiceUnit:"

T = TypeVar("T")
R = TypeVar("R")


class Answer(NamedTuple):
    """A response of this broker or another one."""

    status: int
    body: bytes

    @property
    def is_error(self) -> bool:
        """Whether the call failed, or would have to be made elsewhere."""
        return self.status >= 300

    @property
    def has_no_owner(self) -> bool:
        """Whether there was no broker to be asked."""
        return self.status == NO_OWNER_STATUS and self.reason.startswith(NO_OWNER)

    @property
    def reason(self) -> str:
        """An error's text."""
        return PeerAnswer(*self).reason

    def json(self, kind: type[T]) -> T:
        """The body. Raises RestError 500 for another one, as only a foreign broker could send."""
        try:
            return read_json(self.body, kind)
        except BadJson as error:
            raise rest.RestError(500, f"A broker's answer is not understood: {error}") from None

    def error(self) -> rest.RestError:
        """The same error for the caller."""
        return rest.RestError(self.status, self.reason)


class Call(NamedTuple):
    """What is called on a topic or bundle: a route by its path after the name, with the values of
    that path's parameters as they stand in a path (with escapes), query and body.
    """

    method: str
    path: str
    parameters: Mapping[str, str] = {}
    query: str = ""
    body: bytes = b""


class Calls:
    """Makes calls of one broker's routes; `learn` them first."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._handlers: dict[tuple[str, str], rest.Handler] = {}

    def learn(self, routes: Iterable[Route]) -> None:
        """The routes that can be called."""
        for route in routes:
            for method in route.methods or ():
                self._handlers[method, route.path] = cast(rest.Handler, route.endpoint)

    async def on_topic(self, name: TopicName, call: Call) -> Answer:
        """Call a route of a topic that isn't partitioned."""
        bundle = await self._service.namespaces.bundle_of(name)
        template = f"/admin/v2/{name.domain}/{{tenant}}/{{namespace}}/{{topic}}{call.path}"
        tenant, _, namespace = name.namespace.partition("/")
        place = {"tenant": tenant, "namespace": namespace, "topic": quote(name.local_name, "")}
        return await self._call(bundle, template, place, call)

    async def on_bundle(
        self, bundle: BundleId, call: Call, *, base: str = "namespaces", timeout_s: float = 0.0
    ) -> Answer | None:
        """Call a route of a bundle that somebody owns; None if nobody does."""
        if await self._service.ownership.owner(bundle) is None:
            return None
        template = f"/admin/v2/{base}/{{tenant}}/{{namespace}}/{{bundle}}{call.path}"
        tenant, _, namespace = bundle.namespace.partition("/")
        place = {"tenant": tenant, "namespace": namespace, "bundle": bundle.range}
        return await self._call(bundle, template, place, call, timeout_s)

    async def _call(
        self,
        bundle: BundleId,
        template: str,
        place: Mapping[str, str],
        call: Call,
        timeout_s: float = 0.0,
    ) -> Answer:
        service, parameters = self._service, {**place, **call.parameters}
        path = template
        for name, value in parameters.items():
            path = path.replace(f"{{{name}}}", value)
        if not service.ownership.holds(bundle):
            try:
                found = await service.finder.find(bundle)
            except BrokerError as error:
                return await _answer(_request(call, path, parameters), _raising(error))
            if found is None:
                return _failed(NO_OWNER_STATUS, f"{NO_OWNER}{bundle}")
            if found.addresses.broker_id != service.addresses.broker_id:
                final = found.redirect and found.authoritative
                flag = f"{AUTHORITATIVE}={str(final).lower()}"
                target = f"{path}?{call.query}&{flag}" if call.query else f"{path}?{flag}"
                return await self._ask(found.addresses.broker_id, call, target, timeout_s)
        handler = self._handlers[call.method, template]
        return await _answer(_request(call, path, parameters), handler)

    async def _ask(self, broker_id: str, call: Call, target: str, timeout_s: float) -> Answer:
        try:
            found = await self._service.peers.call(
                broker_id, call.method, target, call.body, timeout_s=timeout_s or None
            )
        except PeerUnreachable as error:
            return _failed(500, str(error))
        return Answer(*found)

    async def on_partitions(self, name: TopicName, count: int, call: Call) -> list[Answer]:
        """Call a route of each partition; all are called, whatever single ones answer."""
        return await each_of(lambda index: self.on_topic(name.partition(index), call), range(count))

    async def on_bundles(
        self, namespace: str, call: Call, *, base: str = "namespaces", timeout_s: float = 0.0
    ) -> list[Answer]:
        """Call a route of each owned bundle of a namespace. Raises ResourceMissing."""
        bundles = await self._service.namespaces.bundles(namespace)
        found = await each_of(
            lambda name: self.on_bundle(
                BundleId(namespace, name), call, base=base, timeout_s=timeout_s
            ),
            bundles.names(),
        )
        return [answer for answer in found if answer is not None]


async def each_of(action: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results in the order of the items; `CONCURRENT_MAX` at a time. All are tried, then the
    first one's error is raised.
    """
    results: dict[int, R] = {}
    errors: dict[int, Exception] = {}
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for at, item in waiting:
            try:
                results[at] = await action(item)
            except Exception as error:
                errors[at] = error

    async with trio.open_nursery() as nursery:
        for _ in range(min(CONCURRENT_MAX, len(items))):
            nursery.start_soon(worker)
    if errors:
        raise errors[min(errors)]
    return [results[at] for at in range(len(items))]


def raise_first(answers: Iterable[Answer], *, but: int = 0) -> None:
    """Raises RestError for the first error, other than of the status `but`."""
    for answer in answers:
        if answer.is_error and answer.status != but:
            raise answer.error()


def _failed(status: int, reason: str) -> Answer:
    return Answer(status, msgspec.json.encode({"reason": reason}))


def _raising(error: Exception) -> rest.Handler:
    async def handler(_request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        raise error

    return handler


def _request(call: Call, path: str, parameters: Mapping[str, str]) -> Request:
    async def receive() -> Message:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": call.body, "more_body": False}

    scope = {
        "type": "http",
        "method": call.method,
        "scheme": "http",
        "path": path,
        "query_string": call.query.encode("latin-1"),
        "headers": [(b"content-type", b"application/json")],
        "path_params": dict(parameters),
    }
    return Request(scope, receive)


async def _answer(request: Request, handler: rest.Handler) -> Answer:
    response = await rest.answered(request, handler)
    return Answer(response.status_code, bytes(response.body))
