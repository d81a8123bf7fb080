"""The bookies that have registered themselves in the metadata store: a `BookieDirectory` of
`RemoteBookie`s (spec BK-21, BK-27; Apache's ZKRegistrationClient, DefaultBookieAddressResolver).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio
from google.protobuf.message import DecodeError

from geminga_bookie.errors import BookieUnavailable, BookkeeperError
from geminga_bookie.wire.dial import dial
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import RemoteBookie
from geminga_protocol.bookkeeper import paths
from geminga_protocol.pb.bookkeeper_metadata_pb2 import BookieServiceInfoFormat
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.stream import FramedStream

RPC = "bookie-rpc"
"""Protocol of the endpoint that speaks BookKeeper's wire protocol."""

SETTLE_S = 0.05
"""Registrations that change within this time are read together."""
RETRY_S = 1.0
"""Wait after the metadata store didn't answer; the bookies known until then stay."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_registered_bookies(
    store: MetadataStore, options: RemoteOptions | None = None
) -> AsyncIterator[RegisteredBookies]:
    """Follow the registrations; each bookie is connected to when a request for it comes. Raises
    MetadataError if they can't be read at first.
    """
    registrations = await _registrations(store)  # raises here, not in a group of exceptions
    async with trio.open_nursery() as nursery:
        bookies = RegisteredBookies(store, options or RemoteOptions(), nursery)
        bookies.learn(*registrations)
        nursery.start_soon(bookies.follow)
        yield bookies
        nursery.cancel_scope.cancel()


async def _registrations(store: MetadataStore) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Ids of the bookies that take new entries, and the values of all registered ones."""
    values: dict[str, bytes] = {}
    writable = [name for name in await store.children(paths.available()) if name != paths.READONLY]
    for parent, names in (
        (paths.readonly(), await store.children(paths.readonly())),
        (paths.available(), writable),
    ):
        for bookie_id in names:
            node = await store.get(f"{parent}/{bookie_id}")
            if node is not None:
                values[bookie_id] = node.value
    return tuple(writable), values


class RegisteredBookies:
    """See `BookieDirectory`. Those beneath `available` take new entries; those beneath
    `available/readonly`, and those that registered earlier, are still read.
    """

    def __init__(self, store: MetadataStore, options: RemoteOptions, nursery: trio.Nursery) -> None:
        self._store = store
        self._options = options
        self._nursery = nursery
        self._writable: tuple[str, ...] = ()
        self._addresses: dict[str, tuple[str, int]] = {}
        """By id: where each bookie is, or was last."""
        self._ports: dict[str, RemoteBookie] = {}
        self._changed = trio.Event()

    async def follow(self) -> None:
        """Read the registrations whenever they change, for ever."""
        while True:
            try:
                async with self._store.watch(paths.available()) as changes:
                    self.learn(*await _registrations(self._store))
                    async for _ in changes:
                        await trio.sleep(SETTLE_S)
                        while changes.statistics().current_buffer_used:
                            changes.receive_nowait()
                        self.learn(*await _registrations(self._store))
            except MetadataError as error:
                _log.warning("the bookies' registrations can't be read: %s", error)
            await trio.sleep(RETRY_S)

    def learn(self, writable: tuple[str, ...], values: Mapping[str, bytes]) -> None:
        """Take what is registered now."""
        for bookie_id, value in values.items():
            self._locate(bookie_id, value)
        if writable != self._writable:
            self._writable = writable
            _log.info("bookies that take new entries: %s", ", ".join(writable) or "none")
            self._changed.set()
            self._changed = trio.Event()

    def _locate(self, bookie_id: str, value: bytes) -> None:
        address = endpoint(value) or _address_in(bookie_id)
        if address is None:
            _log.warning("bookie %s registered without an address", bookie_id)
        else:
            self._addresses[bookie_id] = address

    def port(self, bookie_id: str) -> RemoteBookie:
        """As BookieDirectory.port: also of a bookie that isn't registered now, if its address is
        known or its id is one.
        """
        port = self._ports.get(bookie_id)
        if port is None:
            self._address(bookie_id)
            port = RemoteBookie(bookie_id, partial(self._dial, bookie_id), self._options)
            self._ports[bookie_id] = port
            self._nursery.start_soon(port.run)
        return port

    def _address(self, bookie_id: str) -> tuple[str, int]:
        address = self._addresses.get(bookie_id) or _address_in(bookie_id)
        if address is None:
            raise BookieUnavailable(
                f"bookie {bookie_id} has not registered: its address is unknown"
            )
        return address

    async def _dial(self, bookie_id: str, deadline: float) -> FramedStream:
        """Connect to where the bookie is now: it may have registered elsewhere meanwhile."""
        try:
            host, port = self._address(bookie_id)
        except BookieUnavailable as error:
            raise ConnectFailed(str(error)) from None
        return await dial(host, port, self._options, deadline)

    def writable(self) -> Sequence[str]:
        """As BookieDirectory.writable."""
        return self._writable

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        """As BookieDirectory.failed; without effect: the writer itself avoids the bookie."""

    async def wait_change(self) -> None:
        """As BookieDirectory.wait_change."""
        await self._changed.wait()


def endpoint(value: bytes) -> tuple[str, int] | None:
    """Host and port of the wire protocol in a bookie's registration; None if it says nothing."""
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError:
        return None
    for each in info.endpoints:
        if each.protocol == RPC and 0 < each.port < 1 << 16:
            return each.host, each.port
    return None


def _address_in(bookie_id: str) -> tuple[str, int] | None:
    """The address that an id is, if bookies have no ids of their own."""
    host, _, port = bookie_id.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        return None
    return host, int(port)
