"""Policies that are one field of a namespace's record: GET, POST and DELETE (spec OP-03).

Paths, field names and responses are Apache's (`NamespacesBase`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import policy_values as values
from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.changing import (
    NO_NAMESPACE,
    NO_POLICIES,
    change_policies,
    policies_of,
)
from geminga_broker.cluster.records import JsonObject
from geminga_broker.service import BrokerService
from geminga_runtime.settings import ConfigError


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy at `path`, stored under `field` as a value of `kind`.

    `check` raises RestError for values that Apache refuses. With `of_cluster` the field has values
    by cluster. A request without a body removes an `optional` policy. `unset` is the response if
    there is none.
    """

    path: str
    field: str
    kind: type
    check: values.Check = values.anything
    of_cluster: bool = False
    optional: bool = False
    removable: bool = True
    unset: object = None
    missing: str = NO_NAMESPACE
    """What a change of a namespace that isn't there is told."""
    unread: str = NO_NAMESPACE
    """The same for GET."""
    verb: str = "POST"
    """Method of the request that sets it."""
    required: str = ""
    """Why a request without a body is refused, if as Apache's broker does it by itself."""


def _limit(path: str, field: str, unset: object = None, missing: str = NO_NAMESPACE) -> Policy:
    check = values.not_negative(f"{path} must be 0 or more")
    return Policy(path, field, int, check, unset=unset, missing=missing)


def _record(path: str, field: str, kind: type) -> Policy:
    return Policy(path, field, kind, optional=True, missing=NO_POLICIES)


def _rate(path: str, field: str, kind: type) -> Policy:
    return Policy(path, field, kind, of_cluster=True, optional=True)


POLICIES = (
    Policy("deduplication", "deduplicationEnabled", bool),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        cast(type, int | None),
        values.not_negative("interval must be greater than or equal to 0"),
        optional=True,
        removable=False,
        missing=NO_POLICIES,
    ),
    Policy(
        "messageTTL",
        "message_ttl_in_seconds",
        int,
        values.not_negative("Invalid value for message TTL, message TTL must >= 0"),
    ),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        int,
        values.not_negative("Invalid value for subscription expiration time"),
    ),
    _rate("publishRate", "publishMaxMessageRate", values.PublishRate),
    _rate("dispatchRate", "topicDispatchRate", values.DispatchRate),
    _rate("subscriptionDispatchRate", "subscriptionDispatchRate", values.DispatchRate),
    replace(
        _rate("replicatorDispatchRate", "replicatorDispatchRate", values.DispatchRate),
        unread=NO_POLICIES,
    ),
    _rate("subscribeRate", "clusterSubscribeRate", values.SubscribeRate),
    _limit("maxProducersPerTopic", "max_producers_per_topic"),
    _limit("maxConsumersPerTopic", "max_consumers_per_topic"),
    _limit("maxConsumersPerSubscription", "max_consumers_per_subscription"),
    _limit("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", missing=NO_POLICIES),
    _limit("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer"),
    _limit("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription"),
    _limit("maxTopicsPerNamespace", "max_topics_per_namespace", 0, NO_POLICIES),
    _record("delayedDelivery", "delayed_delivery_policies", values.DelayedDelivery),
    _record("inactiveTopicPolicies", "inactive_topic_policies", values.InactiveTopicPolicies),
    Policy(
        "subscriptionTypesEnabled",
        "subscription_types_enabled",
        cast(type, list[values.SubscriptionType]),
        unset=[],
    ),
    Policy(
        "autoTopicCreation",
        "autoTopicCreationOverride",
        values.AutoTopicCreation,
        values.check_auto_topic_creation,
        optional=True,
    ),
    Policy(
        "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride",
        values.AutoSubscriptionCreation,
        optional=True,
    ),
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        int,
        values.not_negative("compactionThreshold must be 0 or more"),
        verb="PUT",
    ),
    Policy("encryptionRequired", "encryption_required", bool, removable=False, unset=False),
)


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    filters = Policy(
        "entryFilters",
        "entryFilters",
        values.EntryFilters,
        partial(check_entry_filters, service),
        optional=True,
    )
    persistence = Policy(
        "persistence",
        "persistence",
        values.PersistencePolicies,
        partial(values.check_persistence, service.config.log),
        required=values.NO_PERSISTENCE,
    )
    found = (*POLICIES, filters, persistence)
    return [each for policy in found for each in _routes_of(service, policy)]


def check_entry_filters(service: BrokerService, value: object) -> None:
    """Raises RestError 400 for filters that are not installed."""
    assert isinstance(value, values.EntryFilters)
    names = [name.strip() for name in (value.entry_filter_names or "").split(",")]
    if not any(names):
        text = "entryFilterNames can't be empty. To remove entry filters use the remove method."
        raise rest.RestError(400, text)
    for name in names:
        try:
            service.policies.filters(name)
        except ConfigError:
            raise rest.RestError(400, f"Entry filter '{name}' not found") from None


def _routes_of(service: BrokerService, policy: Policy) -> list[Route]:
    cluster = service.config.network.cluster_name

    async def get(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        found = (await policies_of(service, namespace, policy.unread)).get(policy.field)
        if policy.of_cluster:
            found = found.get(cluster) if isinstance(found, dict) else None
        return rest.ok_or_empty(policy.unset if found is None else found, policy.kind)

    async def post(request: Request) -> Response:
        value: object = await rest.read_body(request, policy.kind)
        if value is None:
            if policy.required:
                raise rest.RestError(400, policy.required)
            if not policy.optional:
                raise rest.bad_body(rest.EMPTY_BODY)
        else:
            policy.check(value)
        return await change(request, values.as_record(value))

    async def delete(request: Request) -> Response:
        return await change(request, None)

    async def change(request: Request, value: object) -> Response:
        namespace = rest.namespace_of(request)
        await change_policies(
            service,
            namespace,
            lambda old: _changed(old, policy, cluster, value),
            policy.missing,
        )
        return rest.no_content()

    path = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.path}"
    found = [rest.route("GET", path, get), rest.route(policy.verb, path, post)]
    return [*found, rest.route("DELETE", path, delete)] if policy.removable else found


def _changed(old: JsonObject, policy: Policy, cluster: str, value: object) -> JsonObject:
    """The record with the policy set, or (None) without it."""
    record = dict(old)
    if policy.of_cluster:
        known = record.get(policy.field)
        clusters = dict(known) if isinstance(known, dict) else {}
        clusters.pop(cluster, None)
        if value is not None:
            clusters[cluster] = value
        record[policy.field] = clusters
    elif value is None:
        record.pop(policy.field, None)
    else:
        record[policy.field] = value
    return record
