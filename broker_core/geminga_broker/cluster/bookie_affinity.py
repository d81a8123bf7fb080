"""Groups of bookies that namespaces keep to (spec BK-25; Pulsar's BookieAffinityGroupData in the
local policies, which becomes custom metadata of the topics' ledgers).
"""

from __future__ import annotations

from collections.abc import Mapping

from geminga_bookie.client.placement_rules import POLICY_KEY, isolation_policy
from geminga_broker.cluster.records import Records
from geminga_runtime.metadata.api import MetadataStore

GROUPS = "bookieAffinityGroup"
"""Field of the local policies."""

_OWNER = "pulsar/managed-ledger"


class BookieAffinity:
    """Reads a namespace's groups whenever a ledger of its topics is created."""

    def __init__(self, store: MetadataStore) -> None:
        self._policies = Records(store, "/admin/local-policies")

    async def of_ledger(self, custom_metadata: Mapping[str, bytes]) -> dict[str, bytes]:
        """Custom metadata that a new ledger also gets. Raises MetadataError."""
        owner = custom_metadata.get(_OWNER, b"").decode()
        tenant, _, rest = owner.partition("/")
        namespace = rest.partition("/")[0]
        if not tenant or not namespace:
            return {}
        record = await self._policies.get(f"{tenant}/{namespace}")
        groups = record.get(GROUPS) if record else None
        if not isinstance(groups, dict):
            return {}
        primary = groups.get("bookkeeperAffinityGroupPrimary")
        secondary = groups.get("bookkeeperAffinityGroupSecondary")
        if not isinstance(primary, str) or not primary:
            return {}
        return {
            POLICY_KEY: isolation_policy(primary, secondary if isinstance(secondary, str) else "")
        }
