"""The admin client for Trio."""

from __future__ import annotations

from typing import Unpack

from geminga._admin.exchange import parse_admin_url
from geminga._admin.families.everything import Families
from geminga._admin.options import AdminOptions
from geminga._admin.transport import Transport
from geminga._connection.background import check_loop
from geminga._connection.opening import Block, Connecting, Opening
from geminga._options.checks import make
from geminga._options.keywords import AdminKeywords


def connect(service_url: str, **options: Unpack[AdminKeywords]) -> Connecting[AdminClient]:
    """An admin client for the brokers whose web services are at `http://host:port[,host:port...]`,
    or https; closed at the block's end. If it is awaited instead of entered, it is
    an `AdminClient` that lasts until its `aclose`.

    It connects on first use. Raises InvalidServiceUrlError or InvalidArgumentError at once. See
    `AdminOptions` for the options.
    """
    parse_admin_url(service_url)
    make(AdminOptions, options)

    async def opened() -> AdminClient:
        return AdminClient(service_url, **options)

    return Connecting(lambda: Opening(opened()), opened)


class AdminClient(Families, Block):
    """Operations on a cluster over the admin REST of its brokers, by kind: `tenants`, `namespaces`,
    `topics` and so on. Any number of tasks may use it; connections are kept.

    Operations raise AdminError by the status of the answer, UnreachableError, RequestTimeoutError,
    TlsError, InvalidArgumentError, and AuthenticationError if credentials can't be had.
    """

    def __init__(self, service_url: str, **options: Unpack[AdminKeywords]) -> None:
        """As `connect`, in a running Trio loop."""
        addresses, made = parse_admin_url(service_url), make(AdminOptions, options)
        check_loop("admin.AdminClient")
        self._transport = Transport(addresses, made)
        super().__init__(self._transport.ask)

    def __repr__(self) -> str:
        return f"<AdminClient of {self._transport.address.url}>"

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        await self._transport.aclose()
