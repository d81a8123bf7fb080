"""What a new namespace may have: the same as the calls that change it later allow (spec OP-03)."""

from __future__ import annotations

from typing import cast

from geminga_broker.admin import jackson, rest
from geminga_broker.admin.namespaces import migration, offload
from geminga_broker.admin.namespaces.changing import check_numbers
from geminga_broker.admin.namespaces.clusters import ALLOWED, check_members, names_in
from geminga_broker.admin.namespaces.properties import properties_in
from geminga_broker.admin.namespaces.resource_groups import FIELD as RESOURCE_GROUP
from geminga_broker.admin.namespaces.resource_groups import require_group
from geminga_broker.admin.policy_values import (
    PersistencePolicies,
    RetentionPolicies,
    check_persistence,
    check_retention,
)
from geminga_broker.cluster.records import JsonObject
from geminga_broker.service import BrokerService


async def check_policies(service: BrokerService, namespace: str, policies: JsonObject) -> None:
    """Raises RestError, or the error for a bad body, for policies that a call of their own would
    refuse.
    """
    check_numbers(policies)
    ttl_s = policies.get("message_ttl_in_seconds")
    if isinstance(ttl_s, int) and ttl_s < 0:
        raise rest.RestError(412, "Invalid value for message TTL")
    if "retention_policies" in policies:
        kept = jackson.bind(policies["retention_policies"], RetentionPolicies, "retention_policies")
        check_retention(kept)
    if "persistence" in policies:
        stored = jackson.bind(policies["persistence"], PersistencePolicies, "persistence")
        check_persistence(service.config.log, stored)
    rest.properties_of(properties_in(policies))
    if policies.get("migrated"):
        raise rest.RestError(501, migration.NOT_BUILT)
    await check_members(service, namespace, names_in(policies.get(ALLOWED)))
    if (group := policies.get(RESOURCE_GROUP)) is not None:
        await require_group(service, str(group))
    if (found := policies.get(offload.FIELD)) is not None:
        bound = jackson.bind(found, offload.OffloadPolicies, offload.FIELD)
        offload.check_offload(cast(offload.OffloadPolicies, bound))
