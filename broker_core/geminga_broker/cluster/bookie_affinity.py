"""Groups of bookies that namespaces keep to (spec BK-25; Pulsar's BookieAffinityGroupData in the
local policies, which becomes custom metadata of the topics' ledgers).
"""

from __future__ import annotations

from collections.abc import Mapping

from geminga_bookie.client.placement_rules import POLICY_KEY, isolation_policy
from geminga_broker.cluster.records import JsonObject, Records, decode
from geminga_runtime.metadata.api import MetadataStore

GROUPS = "bookieAffinityGroup"
"""Field of the local policies."""

_OWNER = "pulsar/managed-ledger"
NAMESPACES_KEPT_MAX = 1000
"""Namespaces whose groups stay decoded: each new ledger asks for them."""


class BookieAffinity:
    """Reads a namespace's groups whenever a ledger of its topics is created."""

    def __init__(self, store: MetadataStore) -> None:
        self._policies = Records(store, "/admin/local-policies")
        self._known: dict[str, tuple[bytes, Mapping[str, bytes]]] = {}
        """By namespace, with the record that it was made from."""

    async def of_ledger(self, custom_metadata: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Custom metadata that a new ledger also gets. Raises MetadataError."""
        owner = custom_metadata.get(_OWNER, b"").decode()
        tenant, _, rest = owner.partition("/")
        namespace = rest.partition("/")[0]
        if not tenant or not namespace:
            return {}
        name = f"{tenant}/{namespace}"
        value = await self._policies.value(name)
        if value is None:
            return {}
        known = self._known.get(name)
        if known is not None and known[0] == value:
            return known[1]
        found = _custom_metadata(decode(value))
        if len(self._known) >= NAMESPACES_KEPT_MAX:
            self._known.clear()
        self._known[name] = value, found
        return found


def _custom_metadata(record: JsonObject) -> Mapping[str, bytes]:
    groups = record.get(GROUPS)
    if not isinstance(groups, dict):
        return {}
    primary = groups.get("bookkeeperAffinityGroupPrimary")
    secondary = groups.get("bookkeeperAffinityGroupSecondary")
    if not isinstance(primary, str) or not primary:
        return {}
    return {POLICY_KEY: isolation_policy(primary, secondary if isinstance(secondary, str) else "")}
