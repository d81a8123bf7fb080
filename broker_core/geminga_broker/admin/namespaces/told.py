"""The kinds of a namespace's record, as it is answered (Apache's `Policies`)."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from geminga_broker.admin import answers
from geminga_broker.admin.namespaces.offload import ShownOffload
from geminga_broker.admin.policy_values import NAMESPACE_KINDS, DispatchRate

_OTHERS: dict[str, object] = {
    "auth_policies": answers.Grants,
    "bundles": answers.Bundles,
    "backlog_quota_map": dict[str, answers.Quota],
    "clusterDispatchRate": dict[str, DispatchRate],
    "latency_stats_sample_rate": dict[str, int],
    "deleted": bool,
    "subscription_auth_mode": Literal["None", "Prefix"],
    "schema_auto_update_compatibility_strategy": str,
    "schema_compatibility_strategy": str,
    "is_allow_auto_update_schema": bool,
    "schema_validation_enforced": bool,
    "offload_policies": ShownOffload,
    "migrated": bool,
}
"""Those that a new namespace isn't given in this form."""

Policies = msgspec.defstruct(
    "Policies",
    [(name, kind | UnsetType, UNSET) for name, kind in (NAMESPACE_KINDS | _OTHERS).items()],
    namespace={"__doc__": "All that is set for a namespace."},
)
