"""`geminga._admin.families/tenants` of the blocking face.

Made by tools/faces.py: don't edit.
"""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga._admin import declared as rest

if TYPE_CHECKING:
    from geminga._admin.model.base import Names
    from geminga._admin.model.cluster import TenantInfo

_TENANT = "/admin/v2/tenants/{tenant}"


class Tenants(rest.BlockingFamily):
    """Tenants: who administers them, and in which clusters they may be."""

    @rest.get("/admin/v2/tenants")
    def list(self) -> Names:
        """The names of all tenants."""

    @rest.get(_TENANT)
    def get(self, tenant: str) -> TenantInfo:
        """A tenant's administrators and clusters."""

    @rest.put(_TENANT, body="info")
    def create(self, tenant: str, info: TenantInfo) -> None:
        """Create a tenant. Its clusters must exist."""

    @rest.post(_TENANT, body="info")
    def update(self, tenant: str, info: TenantInfo) -> None:
        """Replace a tenant's administrators and clusters."""

    @rest.delete(_TENANT)
    def delete(self, tenant: str, *, force: bool = False) -> None:
        """Delete a tenant without namespaces; with `force` also its namespaces, if the broker
        allows it.
        """
