"""`geminga admin tenants` (Apache's CmdTenants)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga._admin.families.clusters import Clusters
from geminga._admin.families.tenants import Tenants
from geminga.cli.admin.declare import FORCE, Command, Values, listed

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

_INFO = (
    listed("-r --admin-roles", "admin_roles", "Roles that administer the tenant."),
    listed("-c --allowed-clusters", "allowed_clusters", "Clusters; by default all."),
)


def _create(calls: Calls, values: Values) -> object:
    clusters = values["allowed_clusters"] or calls.call(Clusters.list)
    info = {"adminRoles": values["admin_roles"] or [], "allowedClusters": clusters}
    return calls.call(Tenants.create, tenant=values["tenant"], info=info)


def _update(calls: Calls, values: Values) -> object:
    """What isn't given stays."""
    info = calls.call(Tenants.get, tenant=values["tenant"])
    assert isinstance(info, dict), "a tenant is an object"
    if values["admin_roles"] is not None:
        info["adminRoles"] = values["admin_roles"]
    if values["allowed_clusters"] is not None:
        info["allowedClusters"] = values["allowed_clusters"]
    return calls.call(Tenants.update, tenant=values["tenant"], info=info)


COMMANDS = (
    Command("list", "List the tenants.", Tenants.list),
    Command("get", "Show a tenant's administrators and clusters.", Tenants.get, "tenant"),
    Command("create", "Create a tenant.", None, "tenant", _INFO, run=_create),
    Command("update", "Change administrators or clusters.", None, "tenant", _INFO, run=_update),
    Command("delete", "Delete a tenant.", Tenants.delete, "tenant", (FORCE,)),
)
