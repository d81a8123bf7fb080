"""Which brokers serve which namespaces: the isolation policies of a cluster (spec CL-08, OP-03;
Apache's `ClustersBase`).

They are one record of the configuration store, `.../namespaceIsolationPolicies`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import BrokerIsolation
from geminga_broker.admin.calls import Calls, each_of
from geminga_broker.admin.namespaces.bundles import unload_namespace
from geminga_broker.cluster.records import (
    JsonObject,
    ResourceExists,
    ResourceMissing,
    is_name,
)
from geminga_broker.limits import is_longer
from geminga_broker.loadbalance.isolation import (
    IsolationPolicies,
    NamespaceIsolationData,
    is_expression,
    matches_any,
)
from geminga_broker.service import BrokerService

NAME_BYTES_MAX = 2048
RECORD_BYTES_MAX = 256 * 1024
"""Of one policy or domain."""
POLICIES_BYTES_MAX = 768 * 1024
"""Of all policies: a node of ZooKeeper takes a mebibyte."""

POLICIES = "namespaceIsolationPolicies"
_BASE = "/admin/v2/clusters/{cluster}"


class _Failover(msgspec.Struct):
    """When secondary brokers serve too."""

    parameters: dict[str, str] | None = None
    policy_type: Literal["min_available"] | None = None


class _Policy(msgspec.Struct):
    """Apache's `NamespaceIsolationData` in a body."""

    namespaces: list[str] | None = None
    primary: list[str] | None = None
    secondary: list[str] | None = None
    auto_failover_policy: _Failover | None = None
    unload_scope: Literal["all_matching", "none", "changed"] | None = None

    @property
    def is_valid(self) -> bool:
        """As Apache's `validate`."""
        failover = self.auto_failover_policy
        if not (self.namespaces and self.primary) or self.secondary is None or failover is None:
            return False
        if failover.policy_type is None or failover.parameters is None:
            return False
        expressions = [*self.namespaces, *self.primary, *self.secondary]
        if not all(isinstance(text, str) and is_expression(text) for text in expressions):
            return False  # Apache finds those of namespaces out when it uses them
        return all(
            _is_number(failover.parameters.get(name)) for name in ("min_limit", "usage_threshold")
        )

    def record(self) -> JsonObject:
        """Without what is not set."""
        found: JsonObject = msgspec.to_builtins(self)
        return {name: value for name, value in found.items() if value is not None}


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and -(1 << 31) <= int(text) < 1 << 31
    except ValueError:
        return False


async def require_cluster(service: BrokerService, request: Request, status: int = 412) -> str:
    """The name of the path's cluster. Raises RestError."""
    name = rest.parameter(request, "cluster")
    if not (is_name(name) and await service.namespaces.clusters.exists(name)):
        raise rest.RestError(status, f"Cluster {name} does not exist.")
    return name


async def _policies(service: BrokerService, cluster: str) -> JsonObject:
    """By name, as they are stored. Raises RestError 404 before the first one is set."""
    found = await service.namespaces.clusters.get(f"{cluster}/{POLICIES}")
    if found is None:
        raise rest.RestError(
            404, f"NamespaceIsolationPolicies for cluster {cluster} does not exist"
        )
    return found


async def isolation_policies(service: BrokerService, cluster: str) -> IsolationPolicies:
    """The policies as the load manager reads them; none if there is no valid record."""
    record = await service.namespaces.clusters.get(f"{cluster}/{POLICIES}") or {}
    try:
        found = msgspec.convert(record, dict[str, NamespaceIsolationData])
    except msgspec.ValidationError:
        found = {}
    return IsolationPolicies(found)


def routes(service: BrokerService, calls: Calls) -> list[Route]:
    """All routes of the family."""
    base = f"{_BASE}/{POLICIES}"

    async def list_all(request: Request) -> Response:
        return rest.ok(
            await _policies(service, await require_cluster(service, request, 404)),
            dict[str, _Policy],
        )

    async def get(request: Request) -> Response:
        cluster, name = await require_cluster(service, request), rest.parameter(request, "policy")
        policies = await _policies(service, cluster)
        if name not in policies:
            text = f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}"
            raise rest.RestError(404, text)
        return rest.ok(policies[name], _Policy)

    async def post(request: Request) -> Response:
        cluster, name = await require_cluster(service, request), rest.parameter(request, "policy")
        policy = await rest.read_body(request, _Policy)
        if policy is None or not policy.is_valid:
            data = json.dumps(msgspec.to_builtins(policy), indent=2, separators=(",", " : "))
            text = f"Invalid format of input policy data. policy: {name}; data: {data}"
            raise rest.RestError(400, text)
        record = policy.record()
        check_size(name, record)
        old = await _change(service, cluster, lambda policies: policies | {name: record})
        before = old.get(name)
        await _unload_concerned(service, calls, policy, before if isinstance(before, dict) else {})
        return rest.no_content()

    async def delete(request: Request) -> Response:
        cluster, name = await require_cluster(service, request), rest.parameter(request, "policy")
        await _change(service, cluster, lambda old: {key: old[key] for key in old if key != name})
        return rest.no_content()

    async def brokers(request: Request) -> Response:
        cluster = await require_cluster(service, request)
        policies = await _policies(service, cluster)
        ids = await service.brokers.ids()
        return rest.ok([_of_broker(each, policies) for each in ids], list[BrokerIsolation])

    async def broker(request: Request) -> Response:
        policies = await _policies(service, await require_cluster(service, request))
        return rest.ok(_of_broker(rest.parameter(request, "broker"), policies), BrokerIsolation)

    return [
        rest.route("GET", base, list_all),
        rest.route("GET", base + "/brokers", brokers),
        rest.route("GET", base + "/brokers/{broker}", broker),
        *rest.at(base + "/{policy}", get=get, post=post, delete=delete),
    ]


def check_size(name: str, record: JsonObject) -> None:
    """Raises RestError for a name or record that is too long."""
    if is_longer(name, NAME_BYTES_MAX):
        raise rest.RestError(
            412, f"The name {name[:80]!r}... is longer than {NAME_BYTES_MAX} bytes"
        )
    if len(msgspec.json.encode(record)) > RECORD_BYTES_MAX:
        raise rest.RestError(413, f"It is larger than {RECORD_BYTES_MAX} bytes")


async def _change(
    service: BrokerService, cluster: str, change: Callable[[JsonObject], JsonObject]
) -> JsonObject:
    """Change the policies; made first if nothing was set yet. Returns the ones before."""
    clusters, name = service.namespaces.clusters, f"{cluster}/{POLICIES}"
    before: JsonObject = {}

    def remembering(old: JsonObject) -> JsonObject:
        nonlocal before
        before = old
        new = change(old)
        if len(msgspec.json.encode(new)) > POLICIES_BYTES_MAX:
            raise rest.RestError(413, f"All policies are larger than {POLICIES_BYTES_MAX} bytes")
        return new

    while True:
        try:
            await clusters.update(name, remembering)
        except ResourceMissing:
            with suppress(ResourceExists):
                await clusters.create(name, {})
        else:
            return before


def _of_broker(broker: str, policies: Mapping[str, object]) -> BrokerIsolation:
    """Apache's `BrokerNamespaceIsolationData`: of several policies the last one's name."""
    found: BrokerIsolation = {"brokerName": broker, "namespaceRegex": [], "primary": False}
    for name, record in policies.items():
        try:
            policy = msgspec.convert(record, NamespaceIsolationData)
        except msgspec.ValidationError:
            continue
        if (primary := policy.is_primary(broker)) or policy.is_secondary(broker):
            found["namespaceRegex"] += policy.namespaces
            found["primary"] = primary
            found["policyName"] = name
    return found


async def _unload_concerned(
    service: BrokerService, calls: Calls, policy: _Policy, before: JsonObject
) -> None:
    """Unload the namespaces whose brokers a changed policy may change, by its scope; they are
    placed anew. Raises RestError.
    """
    if policy.unload_scope == "none":
        return
    old = texts_in(before, "namespaces")
    new = policy.namespaces or []
    concerned = {*old, *new}
    same_brokers = sorted(texts_in(before, "primary")) == sorted(policy.primary or [])
    if policy.unload_scope != "all_matching" and (not before or same_brokers):
        concerned -= {*old} & {*new}
    namespaces = service.namespaces
    names = [
        name
        for tenant in await namespaces.tenants.names()
        for name in await namespaces.list(tenant)
        if matches_any(sorted(concerned), name)
    ]

    async def unload(name: str) -> None:
        with suppress(ResourceMissing):
            await unload_namespace(service, calls, name)

    await each_of(unload, names)


def texts_in(record: JsonObject, name: str) -> list[str]:
    """The list of texts at that name; empty if there is none."""
    found = record.get(name)
    return [str(each) for each in found] if isinstance(found, list) else []
