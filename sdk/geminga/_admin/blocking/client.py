"""`geminga._admin.aio_client` of the blocking face.

Made by tools/faces.py: don't edit.
"""

from __future__ import annotations

from typing import Unpack

import geminga._admin.client
from geminga._admin.blocking.families.everything import Families
from geminga._admin.options import AdminOptions as AdminOptions
from geminga._admin.requests import Request
from geminga._bridge.threads import ThreadBlock, ThreadCalls
from geminga._options.keywords import AdminKeywords
from geminga_runtime.http.answers import HttpAnswer


def connect(service_url: str, **options: Unpack[AdminKeywords]) -> AdminClient:
    """An admin client for the brokers whose web services are at `http://host:port[,host:port...]`,
    or https, to be closed by `close` or as a context manager.

    It connects on first use. Raises InvalidServiceUrlError or InvalidArgumentError at once. See
    `AdminOptions` for the options.
    """
    return AdminClient(service_url, **options)


class AdminClient(Families, ThreadBlock):
    """Operations on a cluster over the admin REST of its brokers, by kind: `tenants`, `namespaces`,
    `topics` and so on. Any number of threads may use it; connections are kept.

    Operations raise AdminError by the status of the answer, UnreachableError, RequestTimeoutError,
    TlsError, InvalidArgumentError, and AuthenticationError if credentials can't be had.
    """

    def __init__(self, service_url: str, **options: Unpack[AdminKeywords]) -> None:
        self._session = ThreadCalls(geminga._admin.client.connect(service_url, **options))
        self._session.opened()
        super().__init__(self._ask)

    def __repr__(self) -> str:
        return repr(self._session)

    def _ask(self, request: Request) -> HttpAnswer:
        return self._session.call(lambda: self._session.client._transport.ask(request))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._session.close()
