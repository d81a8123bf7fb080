"""Policies of topics whose check or whose effective value needs the metadata store, and the removal
of all policies (spec BR-60; Apache's `PersistentTopics`). Those that need neither stand in
`policy_table.py`.

There are no copies to other clusters and no shadow topics here: they are refused. There is no
tiered storage: policies of it are kept and told, as at an Apache broker without its offloaders.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import policy_values as values
from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.clusters import check_own
from geminga_broker.admin.namespaces.offload import FIELD as OFFLOAD
from geminga_broker.admin.namespaces.offload import (
    OffloadPolicies,
    ShownOffload,
    check_offload,
    stored_offload,
)
from geminga_broker.admin.topics.policies import change_topic, require_policies, topic_record
from geminga_broker.cluster.records import JsonObject
from geminga_broker.service import BrokerService
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import TopicName

NO_SHADOWS = "Shadow topics are not implemented"
LOCAL_CLUSTER = (
    "Can not remove local cluster from the local topic-level replication clusters policy"
)
NOT_REPLICATED = (
    "Please do not use the global topic level policy when namespace-level replication is not "
    "enabled, because the global level policy relies on namespace-level replication"
)
Check = Callable[[BrokerService, TopicName, object, bool], Awaitable[None]]
"""Raises RestError for a value that isn't taken; None is a request without a body, the last says
whether it is for all clusters.
"""
Applied = Callable[[BrokerService, TopicName], Awaitable[object]]
"""What holds where the topic has no value of its own."""


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy at `path`, stored under `field` of the topic's record as a value of `kind`."""

    path: str
    field: str
    kind: type
    check: Check
    applied: Applied | None = None
    verb: str = "POST"
    """Method of the request that sets it."""
    fixed: object = None
    """The value that a request sets, if it has no body."""
    unset: object = None
    """What is answered without a value; None is nothing."""
    shown: Callable[[object], object] = lambda value: value
    """A stored value as it is answered."""
    told: type | None = None
    """The kind of that, if it is another."""


async def _anything(
    service: BrokerService, name: TopicName, value: object, is_global: bool
) -> None:
    del service, name, value, is_global


async def _check_persistence(
    service: BrokerService, name: TopicName, value: object, is_global: bool
) -> None:
    del name, is_global
    if value is None:
        raise rest.RestError(400, values.NO_PERSISTENCE)
    values.check_persistence(service.config.log, value)


async def _check_clusters(
    service: BrokerService, name: TopicName, value: object, is_global: bool
) -> None:
    wanted = cast("list[str] | None", value)
    if not wanted:
        raise rest.RestError(412, "ClusterIds should not be null or empty")
    if is_global:
        everywhere = await _namespace_field(service, name, "replication_clusters")
        if not isinstance(everywhere, list) or len(everywhere) < 2:
            raise rest.RestError(412, NOT_REPLICATED)
    elif service.config.network.cluster_name not in wanted:
        raise rest.RestError(412, LOCAL_CLUSTER)
    tenant = await service.namespaces.tenants.get(name.tenant) or {}
    allowed = tenant.get("allowedClusters")
    for cluster in dict.fromkeys(wanted):
        record = await service.namespaces.clusters.get(cluster)
        if record is None:
            raise rest.RestError(403, f"Invalid cluster id: {cluster}")
        found = record.get("peerClusterNames")
        peers = sorted(set(found) & set(wanted)) if isinstance(found, list) else []
        if peers:
            raise rest.RestError(
                409,
                f"{cluster}'s peer-clusters [{', '.join(peers)}] can't be part of "
                f"replication-clusters [{', '.join(wanted)}]",
            )
        if not isinstance(allowed, list) or cluster not in allowed:
            raise rest.RestError(
                403,
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant "
                f"[{name.tenant}]",
            )
    check_own(service, list(dict.fromkeys(wanted)))


async def _check_shadows(
    service: BrokerService, name: TopicName, value: object, is_global: bool
) -> None:
    del is_global
    shadows = cast("list[str | None] | None", value)
    if not name.is_persistent:
        text = "Only persistent source topic is supported with shadow topics."
        raise rest.RestError(412, text)
    if not shadows:
        text = "Cannot specify empty shadow topics, please use remove command instead."
        raise rest.RestError(412, text)
    for given in shadows:
        try:
            shadow = TopicName.parse(given or "")
        except LocalProtocolError:
            raise rest.RestError(403, f"Invalid shadow topic name: {given}") from None
        if not shadow.is_persistent:
            raise rest.RestError(412, "Only persistent topic can be set as shadow topic")
        if not await service.catalog.partitions(shadow) and not await service.topics.exists(shadow):
            raise rest.RestError(412, f"Shadow topic [{given}] not exists.")
    raise rest.RestError(501, NO_SHADOWS)


async def _check_offload(
    service: BrokerService, name: TopicName, value: object, is_global: bool
) -> None:
    del service, name, is_global
    check_offload(cast("OffloadPolicies | None", value))


def _shown_offload(value: object) -> object:
    return stored_offload({OFFLOAD: value})


async def _namespace_field(service: BrokerService, name: TopicName, field_name: str) -> object:
    return (await service.namespaces.tenants.get(name.namespace) or {}).get(field_name)


async def _persistence(service: BrokerService, name: TopicName) -> object:
    found = await _namespace_field(service, name, "persistence")
    log = service.config.log
    return found or {
        "bookkeeperEnsemble": log.ensemble_size,
        "bookkeeperWriteQuorum": log.write_quorum,
        "bookkeeperAckQuorum": log.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": float(log.mark_delete_rate_per_s),
    }


async def _clusters(service: BrokerService, name: TopicName) -> object:
    return await _namespace_field(service, name, "replication_clusters")


async def _replicator_rate(service: BrokerService, name: TopicName) -> object:
    rates = await _namespace_field(service, name, "replicatorDispatchRate")
    own = rates.get(service.config.network.cluster_name) if isinstance(rates, dict) else None
    return own or msgspec.to_builtins(values.DispatchRate(period_s=1))


async def _pause(service: BrokerService, name: TopicName) -> object:
    return bool(await _namespace_field(service, name, "dispatcherPauseOnAckStatePersistentEnabled"))


async def _offload(service: BrokerService, name: TopicName) -> object:
    return await _namespace_field(service, name, OFFLOAD)


POLICIES = (
    StoredPolicy(
        "persistence", "persistence", values.PersistencePolicies, _check_persistence, _persistence
    ),
    StoredPolicy(
        "replication", "replicationClusters", cast(type, list[str]), _check_clusters, _clusters
    ),
    StoredPolicy(
        "replicatorDispatchRate",
        "replicatorDispatchRate",
        values.DispatchRate,
        _anything,
        _replicator_rate,
    ),
    StoredPolicy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled",
        bool,
        _anything,
        _pause,
        fixed=True,
        unset=False,
    ),
    StoredPolicy("shadowTopics", "shadowTopics", cast(type, list[str]), _check_shadows, verb="PUT"),
    StoredPolicy(
        "offloadPolicies",
        "offloadPolicies",
        OffloadPolicies,
        _check_offload,
        _offload,
        shown=_shown_offload,
        told=ShownOffload,
    ),
)


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""
    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"

    async def forget(request: Request) -> Response:
        name = rest.topic_of(request, domain)  # which need not be there any more
        await service.policies.store.delete(name)
        await service.topics.topic_policies_changed(name)
        return rest.no_content()

    found = [each for policy in POLICIES for each in _routes_of(service, domain, policy, one)]
    return [*found, rest.route("DELETE", one + "/policies", forget)]


def _routes_of(service: BrokerService, domain: str, policy: StoredPolicy, one: str) -> list[Route]:
    async def get(request: Request) -> Response:
        found = (await topic_record(service, request, domain)).get(policy.field)
        if found is None and policy.applied is not None and rest.flag(request, "applied"):
            found = await policy.applied(service, rest.topic_of(request, domain))
        found = policy.unset if found is None else found
        return rest.ok_or_empty(
            policy.shown(values.in_order(found, policy.kind)), policy.told or policy.kind
        )

    async def put(request: Request) -> Response:
        value: object = policy.fixed
        if value is None:
            value = await rest.read_body(request, policy.kind)
        name = await require_policies(service, request, domain)
        await policy.check(service, name, value, rest.flag(request, "isGlobal"))
        return await change(request, values.as_record(value))

    async def delete(request: Request) -> Response:
        return await change(request, None)

    async def change(request: Request, value: object) -> Response:
        return await change_topic(service, request, domain, lambda old: _with(old, value))

    def _with(record: JsonObject, value: object) -> JsonObject:
        others = {name: each for name, each in record.items() if name != policy.field}
        return others if value is None else {**others, policy.field: value}

    path = f"{one}/{policy.path}"
    return [
        rest.route("GET", path, get),
        rest.route(policy.verb, path, put),
        rest.route("DELETE", path, delete),
    ]
