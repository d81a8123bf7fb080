"""The leader has bundles unloaded and split by whoever owns them (spec CL-09 to CL-11; Apache's
leader calls its own admin client).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import quote

from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.unloading import UnloadRunning

TIMEOUT_MARGIN_S = 10.0
"""Beside the time that an unload may take."""


class CallFailed(Exception):
    """The bundle was not unloaded or split, as far as is known."""


class Peers(Protocol):
    """Calls to other brokers: `admin.peers.Peers`."""

    async def call(
        self,
        broker_id: str,
        method: str,
        path_and_query: str,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> PeerAnswer:
        """Raises PeerUnreachable."""


class BundleCalls:
    """Unloads and splits. `unload` does it here (`BundleUnloader.unload`); `timeout_s` tells
    how long a broker may take to unload a bundle.
    """

    def __init__(
        self,
        ownership: BundleOwnership,
        unload: Callable[[BundleId, str], Awaitable[bool]],
        peers: Peers,
        *,
        timeout_s: Callable[[], float],
    ) -> None:
        self._ownership = ownership
        self._unload = unload
        self._peers = peers
        self._timeout_s = timeout_s

    async def unload(self, bundle: str, owner: str, destination: str) -> None:
        """Have it given up; `destination` may be empty: then its clients ask who owns it. Raises
        CallFailed.
        """
        if owner == self._ownership.addresses.broker_id:
            await self._unload_own(bundle, destination)
            return
        query = f"?destinationBroker={quote(destination)}" if destination else ""
        await self._call(owner, f"{_path(bundle)}/unload{query}")

    async def _unload_own(self, bundle: str, destination: str) -> None:
        try:
            if not await self._unload(BundleId.parse(bundle), destination):
                raise CallFailed("it isn't owned by this broker any more")
        except (UnloadRunning, ValueError) as error:
            raise CallFailed(str(error)) from error

    async def split(self, bundle: str, owner: str, *, unload: bool) -> None:
        """Have it split by the default algorithm, the new ones unloaded if wanted. Raises
        CallFailed.
        """
        await self._call(owner, f"{_path(bundle)}/split?unload={str(unload).lower()}")

    async def _call(self, owner: str, path: str) -> None:
        try:
            answer = await self._peers.call(
                owner, "PUT", path, timeout_s=self._timeout_s() + TIMEOUT_MARGIN_S
            )
        except PeerUnreachable as error:
            raise CallFailed(str(error)) from error
        if answer.status >= 300:
            raise CallFailed(f"broker {owner}: {answer.reason}")


def _path(bundle: str) -> str:
    return f"/admin/v2/namespaces/{quote(bundle)}"
