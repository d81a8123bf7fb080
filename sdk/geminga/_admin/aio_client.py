"""The admin client of `geminga.aio`; tools/faces.py makes the blocking one from it."""

from __future__ import annotations

from typing import Unpack

import geminga._admin.client
from geminga._admin.families.everything import Families
from geminga._admin.options import AdminOptions as AdminOptions
from geminga._admin.requests import Request
from geminga._bridge.asyncs import AsyncBlock, AsyncCalls
from geminga._connection.opening import Connecting, Opening
from geminga._options.keywords import AdminKeywords
from geminga_runtime.http.answers import HttpAnswer


def connect(service_url: str, **options: Unpack[AdminKeywords]) -> Connecting[AdminClient]:
    """An admin client for the brokers whose web services are at `http://host:port[,host:port...]`,
    or https; closed at the block's end. If it is awaited instead of entered, it is
    an `AdminClient` that lasts until its `aclose`.

    It connects on first use. Raises InvalidServiceUrlError or InvalidArgumentError at once. See
    `AdminOptions` for the options.
    """
    geminga._admin.client.connect(service_url, **options)

    async def opened() -> AdminClient:
        client = AdminClient(service_url, **options)
        await client._session.opened()
        return client

    return Connecting(lambda: Opening(opened()), opened)


class AdminClient(Families, AsyncBlock):
    """Operations on a cluster over the admin REST of its brokers, by kind: `tenants`, `namespaces`,
    `topics` and so on. Any number of tasks may use it; connections are kept.

    Operations raise AdminError by the status of the answer, UnreachableError, RequestTimeoutError,
    TlsError, InvalidArgumentError, and AuthenticationError if credentials can't be had.
    """

    def __init__(self, service_url: str, **options: Unpack[AdminKeywords]) -> None:
        self._session = AsyncCalls(geminga._admin.client.connect(service_url, **options))
        super().__init__(self._ask)

    def __repr__(self) -> str:
        return repr(self._session)

    async def _ask(self, request: Request) -> HttpAnswer:
        return await self._session.call(lambda: self._session.client._transport.ask(request))

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        await self._session.aclose()
