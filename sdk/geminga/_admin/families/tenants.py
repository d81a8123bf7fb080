"""Tenants."""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga._admin import declared as rest

if TYPE_CHECKING:
    from geminga._admin.model.base import Names
    from geminga._admin.model.cluster import TenantInfo

_TENANT = "/admin/v2/tenants/{tenant}"


class Tenants(rest.Family):
    """Tenants: who administers them, and in which clusters they may be."""

    @rest.get("/admin/v2/tenants")
    async def list(self) -> Names:
        """The names of all tenants."""

    @rest.get(_TENANT)
    async def get(self, tenant: str) -> TenantInfo:
        """A tenant's administrators and clusters."""

    @rest.put(_TENANT, body="info")
    async def create(self, tenant: str, info: TenantInfo) -> None:
        """Create a tenant. Its clusters must exist."""

    @rest.post(_TENANT, body="info")
    async def update(self, tenant: str, info: TenantInfo) -> None:
        """Replace a tenant's administrators and clusters."""

    @rest.delete(_TENANT)
    async def delete(self, tenant: str, *, force: bool = False) -> None:
        """Delete a tenant without namespaces; with `force` also its namespaces, if the broker
        allows it.
        """
