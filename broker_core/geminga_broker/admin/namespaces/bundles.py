"""Bundles of namespaces: list, unload, split, delete, and what is done to all their topics (spec
CL-10, CL-11, OP-03; Apache's `NamespacesBase`).

What concerns a whole namespace is called for each of its bundles, where that is; a bundle without
an owner has no loaded topics, and is passed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import answers, rest
from geminga_broker.admin.bundle_rules import bundle_in, destination_of
from geminga_broker.admin.calls import Call, Calls, each_of, raise_first
from geminga_broker.admin.owners import bundles_of
from geminga_broker.cluster.catalog import is_system_topic
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.errors import BrokerError
from geminga_broker.loadbalance.collect import LOOKS_PER_UNIT, add_topic
from geminga_broker.loadbalance.model import NamespaceBundleStats
from geminga_broker.loadbalance.settings import SPECIFIED_POSITIONS_DIVIDE
from geminga_broker.loadbalance.split_points import TopicLoad, split_points
from geminga_broker.ownership.bundle import HASH_MAX, NAMES_A_TURN, BundleId
from geminga_broker.ownership.splitting import BundleGone, NotOwned
from geminga_broker.ownership.unloading import UnloadRunning
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.keys import bundle_hash
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName
from geminga_runtime.background import Turns

MIB = 1 << 20
UNLOAD_EXTRA_S = 30.0
"""What a call of another broker may take beyond the time that its unload may."""

UNSUPPORTED = "Unsupported namespace bundle split algorithm"

_BASE = "/admin/v2/namespaces/{tenant}/{namespace}"
_REPLICATOR = "pulsar.repl."


async def unload_namespace(service: BrokerService, calls: Calls, namespace: str) -> None:
    """Unload each bundle at its owner. Raises RestError, ResourceMissing."""
    timeout_s = service.config.topics.bundle_unload_timeout_ms / 1000 + UNLOAD_EXTRA_S
    unload = Call("PUT", "/unload")
    raise_first(await calls.on_bundles(namespace, unload, timeout_s=timeout_s))


def routes(service: BrokerService, calls: Calls) -> list[Route]:
    """All routes of the family."""

    async def bundles(request: Request) -> Response:
        return rest.ok(
            (await bundles_of(service, rest.namespace_of(request))).to_json(), answers.Bundles
        )

    async def unload(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        if not await service.namespaces.exists(namespace):
            raise rest.RestError(404, "Namespace not found")
        await unload_namespace(service, calls, namespace)
        return rest.no_content()

    one = _BASE + "/{bundle}"
    return [
        rest.route("GET", _BASE + "/bundles", bundles),
        rest.route("PUT", _BASE + "/unload", unload),
        *_backlog_routes(service, calls, one),
        *_bundle_routes(service, one),
        rest.route(
            "GET", "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}", _passing(service)
        ),
    ]


def _bundle_routes(service: BrokerService, one: str) -> list[Route]:
    async def unload(request: Request) -> Response:
        try:
            await service.unloader.unload(bundle_in(request), destination_of(request))
        except UnloadRunning as error:
            raise rest.RestError(412, str(error)) from None
        return rest.no_content()

    async def delete(request: Request) -> Response:
        bundle = bundle_in(request)
        if not rest.flag(request, "force"):
            names = await service.catalog.persistent(bundle.namespace)
            if await bundle.among(names):
                raise rest.RestError(409, "Cannot delete non empty bundle")
        try:
            await service.unloader.unload(bundle)
        except UnloadRunning as error:
            raise rest.RestError(412, str(error)) from None
        return rest.no_content()

    async def hash_positions(request: Request) -> Response:
        bundle = bundle_in(request)
        names = await _topics_of(service, bundle)
        if asked := request.query_params.getlist("topics"):
            names = await _asked_among(asked, names)
        return rest.ok(
            {
                "namespace": bundle.namespace,
                "bundle": bundle.range,
                "topicHashPositions": {name: bundle_hash(name) for name in names},
            },
            answers.HashPositions,
        )

    return [
        rest.route("DELETE", one, delete),
        rest.route("PUT", one + "/unload", unload),
        rest.route("PUT", one + "/split", _splitting(service)),
        rest.route("GET", one + "/topicHashPositions", hash_positions),
    ]


def _splitting(service: BrokerService) -> rest.Handler:
    async def split(request: Request) -> Response:
        bundle, settings = bundle_in(request), service.config.load_balance
        algorithm = request.query_params.get("splitAlgorithmName", "").strip()
        given = await rest.read_body(request, list[int]) or []
        if algorithm and algorithm not in settings.supported_splits:
            supported = ", ".join(settings.supported_splits)
            raise rest.RestError(412, f"{UNSUPPORTED}, supported algorithms are [{supported}]")
        if algorithm == SPECIFIED_POSITIONS_DIVIDE and not given:
            text = f"With {algorithm} split algorithm, splitBoundaries must not be empty"
            raise rest.RestError(412, text)
        low, end = bundle.bounds
        try:
            points = split_points(
                algorithm or settings.split_algorithm,
                low,
                min(end, HASH_MAX),
                await _loads_of(service, bundle),
                given=given,
                rate_max=settings.bundle_rate_max,
                throughput_max=settings.bundle_mb_max * MIB,
                difference=settings.flow_difference_percent / 100,
            )
            if points:  # otherwise there is nothing to split, which is no error in Apache either
                unload = rest.flag(request, "unload")
                await service.splitter.split(bundle, points, unload=unload)
        except ValueError:
            raise rest.RestError(412, "Split bundle failed due to invalid request") from None
        except (NotOwned, BundleGone, UnloadRunning) as error:
            raise rest.RestError(412, str(error)) from None
        return rest.no_content()

    return split


async def _loads_of(service: BrokerService, bundle: BundleId) -> list[TopicLoad]:
    """The bundle's topics, and what those that are loaded have to do."""
    found = []
    turns = Turns()
    looks = 0
    for name in await _topics_of(service, bundle):
        stats = NamespaceBundleStats()
        looks += 1
        if (topic := service.topics.loaded.get(name)) is not None:
            looks += add_topic(stats, topic)
        found.append(TopicLoad(bundle_hash(name), stats.rate, stats.throughput))
        if looks >= LOOKS_PER_UNIT:
            await turns.spend(looks // LOOKS_PER_UNIT)
            looks = 0
    return found


async def _topics_of(service: BrokerService, bundle: BundleId) -> list[str]:
    """A bundle's topics, with all partitions, the bundle being owned here."""
    stored = await service.catalog.persistent(bundle.namespace)
    passing = sorted(name for name in service.topics.loaded if name.startswith("non-"))
    return await bundle.among((*stored, *passing))


async def _asked_among(asked: Sequence[str], names: Sequence[str]) -> list[str]:
    """Those of the topics, or of their partitions, that a query names."""
    wanted = {str(rest.parsed_topic(text)) for text in asked}
    found: list[str] = []
    for number, name in enumerate(names):
        base = name.rpartition(PARTITION_SUFFIX)[0]
        if name in wanted or (base in wanted and TopicName.parse(name).is_partition):
            found.append(name)
        if number % NAMES_A_TURN == 0:
            await trio.lowlevel.checkpoint()
    return found


def _passing(service: BrokerService) -> rest.Handler:
    async def names(request: Request) -> Response:
        bundle = bundle_in(request)
        loaded = (name for name in service.topics.loaded if name.startswith("non-persistent://"))
        return rest.ok(await bundle.among(loaded), list[str])

    return names


def _backlog_routes(service: BrokerService, calls: Calls, one: str) -> list[Route]:
    """What is done to the loaded topics of one bundle, or of all bundles of a namespace."""

    def on_bundle(action: _OnTopic) -> rest.Handler:
        async def handler(request: Request) -> Response:
            bundle, subscription = bundle_in(request), _subscription(request)
            names = await bundle.among(service.topics.loaded)
            loaded = service.topics.loaded
            topics = [loaded[name] for name in names if name in loaded]
            await each_of(lambda topic: action(topic, subscription), topics)
            return rest.no_content()

        return handler

    def on_namespace(path: str) -> rest.Handler:
        async def handler(request: Request) -> Response:
            parts = request.path_params
            given = {"subscription": str(parts["subscription"])} if "subscription" in parts else {}
            try:
                answers = await calls.on_bundles(
                    rest.namespace_of(request), Call("POST", path, given)
                )
            except ResourceMissing:
                return rest.no_content()  # as Apache, which finds no bundles with owners then
            raise_first(answers)
            return rest.no_content()

        return handler

    found = []
    for path, action in (
        ("/clearBacklog", _clear),
        ("/clearBacklog/{subscription}", _clear),
        ("/unsubscribe/{subscription}", _unsubscribe),
    ):
        found.append(rest.route("POST", _BASE + path, on_namespace(path)))
        found.append(rest.route("POST", one + path, on_bundle(action)))
    return found


_OnTopic = Callable[[Topic, str], Awaitable[None]]


def _subscription(request: Request) -> str:
    """The subscription of the path; empty for all."""
    return rest.subscription_of(request) if "subscription" in request.path_params else ""


async def _clear(topic: Topic, subscription: str) -> None:
    """Clear the backlog of one subscription, or of all."""
    if not isinstance(topic, PersistentTopic) or is_system_topic(TopicName.parse(topic.name)):
        return
    if subscription and subscription not in topic.subscriptions:
        raise rest.RestError(500, "Cursor not found")
    for name in [subscription] if subscription else list(topic.subscriptions):
        await topic.skip(name, None)


async def _unsubscribe(topic: Topic, subscription: str) -> None:
    if subscription.startswith(_REPLICATOR):
        raise rest.RestError(412, "Cannot unsubscribe a replication cursor")
    try:
        await topic.delete_subscription(subscription, force=False)
    except BrokerError as error:
        if error.code != ServerError.SubscriptionNotFound:
            raise
