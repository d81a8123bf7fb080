"""The broker's HTTP side as one ASGI application (spec OP-03, OP-05)."""

from __future__ import annotations

from functools import partial

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from geminga_broker.admin import (
    bookies,
    broker_routes,
    broker_stats,
    clusters,
    failure_domains,
    functions,
    isolation_policies,
    resource_quotas,
    schema_routes,
    tenants,
)
from geminga_broker.admin.calls import Calls
from geminga_broker.admin.guard import guard, unknown_to
from geminga_broker.admin.http.direct import DirectRoutes
from geminga_broker.admin.http.methods import FOLDERS, Methods
from geminga_broker.admin.http.shapes import ShapedRouter
from geminga_broker.admin.http.shared_answers import SharedAnswers
from geminga_broker.admin.namespaces import (
    anti_affinity,
    dispatching,
    migration,
    offload,
    properties,
    resource_groups,
)
from geminga_broker.admin.namespaces import bundles as bundle_routes
from geminga_broker.admin.namespaces import clusters as namespace_clusters
from geminga_broker.admin.namespaces import permissions as permission_routes
from geminga_broker.admin.namespaces import policies as policy_routes
from geminga_broker.admin.namespaces import quotas as quota_routes
from geminga_broker.admin.namespaces import routes as namespace_routes
from geminga_broker.admin.namespaces import schema_policies as schema_policy_routes
from geminga_broker.admin.openapi.routes import Description
from geminga_broker.admin.producing import routes as produce_routes
from geminga_broker.admin.rest import EXCEPTION_HANDLERS, on_defect
from geminga_broker.admin.routing import brought_to_owners
from geminga_broker.admin.topics import backlog as backlog_routes
from geminga_broker.admin.topics import compaction as compaction_routes
from geminga_broker.admin.topics import messages as message_routes
from geminga_broker.admin.topics import offload as offload_routes
from geminga_broker.admin.topics import partitioned as partitioned_routes
from geminga_broker.admin.topics import policies as topic_policy_routes
from geminga_broker.admin.topics import properties as property_routes
from geminga_broker.admin.topics import replicated as replicated_routes
from geminga_broker.admin.topics import routes as topic_routes
from geminga_broker.admin.topics import stats as stats_routes
from geminga_broker.admin.topics import stored as stored_routes
from geminga_broker.admin.topics import stored_policies
from geminga_broker.admin.topics import subscriptions as subscription_routes
from geminga_broker.admin.topics import why as why_routes
from geminga_broker.admin.transactions import routes as transaction_routes
from geminga_broker.health import SharedCheck
from geminga_broker.metrics.exposition import Exposition
from geminga_broker.metrics.page import Chunked
from geminga_broker.metrics.scrape import scrape
from geminga_broker.service import BrokerService
from geminga_runtime.single_flight import Late

DOMAINS = ("persistent", "non-persistent")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(service: BrokerService, calls: Calls | None = None) -> ASGIApp:
    """All routes of a broker, guarded; `calls` learns them."""
    routes = routes_of(service, calls)
    unknown = unknown_to(service, Methods(routes))
    on_errors = EXCEPTION_HANDLERS | {HTTPException: unknown}
    app = Starlette(exception_handlers=on_errors | {Exception: on_defect})
    router = app.router = ShapedRouter(guard(service, routes))
    return _by_kind(service, DirectRoutes(app, router, on_errors, on_defect))


def routes_of(service: BrokerService, calls: Calls | None = None) -> list[Route]:
    """All routes of a broker, not guarded; those of topics and bundles lead to their owners."""
    calls = calls or Calls(service)
    routes = [*clusters.routes(service), *isolation_policies.routes(service, calls)]
    routes += [*failure_domains.routes(service), *tenants.routes(service)]
    routes += [*resource_quotas.routes(service), *broker_stats.routes(service)]
    routes += [*namespace_routes.routes(service, calls), *broker_routes.routes(service)]
    for family in (
        *(anti_affinity, dispatching, migration, namespace_clusters),
        *(offload, properties, resource_groups),
    ):
        routes += family.routes(service)
    routes += [*policy_routes.routes(service), *quota_routes.routes(service, DOMAINS)]
    routes += [*stats_routes.routes(service, calls, DOMAINS)]
    routes += [*produce_routes.routes(service, DOMAINS)]
    for domain in DOMAINS:
        routes += partitioned_routes.routes(service, calls, domain)
        routes += subscription_routes.routes(service, domain)
        routes += topic_routes.routes(service, calls, domain)
        routes += [*message_routes.routes(service, domain), *backlog_routes.routes(service, domain)]
        for topics in (
            *(why_routes, topic_policy_routes, stored_policies, property_routes, stored_routes),
            *(replicated_routes, offload_routes, compaction_routes),
        ):
            routes += topics.routes(service, domain)
        routes += permission_routes.topic_routes(service, domain)
        routes += schema_policy_routes.topic_routes(service, domain)
    routes += [*permission_routes.routes(service), *transaction_routes.routes(service)]
    routes += functions.routes()
    routes += [
        *schema_routes.routes(service.schemas, service.namespaces),
        *schema_policy_routes.routes(service),
    ]
    description = Description(broker_routes.PULSAR_VERSION, lambda: brought)
    routes += [*bookies.routes(service), *_plain_routes(service), *description.routes()]
    # Last: a range of hashes stands where other paths have words.
    routes += bundle_routes.routes(service, calls)
    brought = brought_to_owners(service, calls, routes)
    calls.learn(brought)
    return brought


def _plain_routes(service: BrokerService) -> list[Route]:
    pages = SharedAnswers[Exposition]()
    turns = trio.Lock()
    make = partial(scrape, service, version=broker_routes.PULSAR_VERSION)

    async def metrics(_request: Request) -> Response:
        return Chunked((await pages.of(METRICS_TYPE, make)).chunks(), METRICS_TYPE, turns)

    async def to_metrics(_request: Request) -> Response:
        return RedirectResponse("/metrics/", status_code=302)

    health = SharedCheck(service)

    async def status(_request: Request) -> Response:
        await health.check()
        return PlainTextResponse("OK")

    return [
        Route("/metrics", to_metrics, methods=["GET"]),
        Route("/metrics/", metrics, methods=["GET"]),
        Route("/status.html", status, methods=["GET"]),
    ]


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    answer = PlainTextResponse("Too Many Requests", status_code=429)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await answer(scope, receive, send)


_WITH_SLASHES = ("/admin/", "/lookup/", "/topics/")


def _without_slash(path: str) -> str:
    """The path without a slash at its end, which says nothing; as Apache's, not without two."""
    is_folder = path.rstrip("/") in FOLDERS
    if path.startswith(_WITH_SLASHES) and path.endswith("/") and not is_folder:
        return path if path.endswith("//") else path[:-1]
    return path


def _by_kind(service: BrokerService, app: ASGIApp) -> ASGIApp:
    """WebSockets to their service, requests to the routes.

    Routes match the path as it was sent, so that `%2F` in a topic's name doesn't split it.

    Handlers decode the parts that they take (`rest.parameter`).
    """

    limit = service.request_limit

    def make_sockets() -> ASGIApp:
        # With a client in it: a start without WebSockets is a fifth shorter.
        from geminga_broker.websocket.service import WebSocketService

        return WebSocketService(service)

    sockets = Late(make_sockets)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if limit is not None and not limit.takes_one():
            await _too_many(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await (await sockets.get())(scope, receive, send)
            return
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("latin-1").partition("?")[0]
            scope = dict(scope, path=_without_slash(path))
        await app(scope, receive, send)

    return wrapped
