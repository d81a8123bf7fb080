"""The bookies that have registered themselves in the metadata store: a `BookieDirectory` of
`RemoteBookie`s (spec BK-21, BK-27; Apache's ZKRegistrationClient, DefaultBookieAddressResolver).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio
from google.protobuf.message import DecodeError

from geminga_bookie.client.health import BookieHealth, HealthOptions, ReadRank
from geminga_bookie.client.placement_rules import PlacementOptions, PlacementRules
from geminga_bookie.errors import BookieUnavailable, BookkeeperError
from geminga_bookie.racks import BOOKIES, Racks, parse_racks
from geminga_bookie.wire.dial import dial
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import RemoteBookie
from geminga_protocol.bookkeeper import paths
from geminga_protocol.pb.bookkeeper_metadata_pb2 import BookieServiceInfoFormat
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.lasting import open_lasting_nursery
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.stream import FramedStream

RPC = "bookie-rpc"
"""Protocol of the endpoint that speaks BookKeeper's wire protocol."""

SETTLE_S = 0.05
"""Registrations that change within this time are read together."""
PULSE_S = 1.0
"""Between two looks at the clock, for whether this process was stopped."""
STILL_S_MIN = 1.0
"""Shorter pauses are within every time-out."""
RETRY_S = 1.0
"""Wait after the metadata store didn't answer; the bookies known until then stay."""

FreeBytes = Callable[[RemoteBookie], Awaitable[int]]
"""Asks a bookie for the free space of its disks. Raises BookkeeperError."""


async def ask_free_bytes(bookie: RemoteBookie) -> int:
    """The bookie's own word (GET_BOOKIE_INFO)."""
    return (await bookie.info()).free_bytes


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """How bookies are chosen; the defaults are those of Pulsar's broker."""

    placement: PlacementOptions = PlacementOptions()
    health: HealthOptions = HealthOptions()
    reorder_reads: bool = True
    """Read last from bookies that are slow, failed lately, or aren't there."""
    free_bytes: FreeBytes = ask_free_bytes
    """For placement by weight."""
    free_bytes_interval_s: float = 86400.0
    free_bytes_retry_s: float = 60.0
    """After a bookie that didn't answer."""


@asynccontextmanager
async def open_registered_bookies(
    store: MetadataStore,
    options: RemoteOptions | None = None,
    *,
    choice: ChoiceOptions | None = None,
    racks_from: MetadataStore | None = None,
) -> AsyncIterator[RegisteredBookies]:
    """Follow the registrations; each bookie is connected to when a request for it comes. Their
    racks are read from `racks_from`, if they are in another store. Connections last until the block
    has ended, also while it is cancelled. Raises MetadataError if they can't be read at first.
    """
    # These raise here, not in a group of exceptions.
    registrations = await _registrations(store)
    node = await (racks_from or store).get(BOOKIES)
    async with open_lasting_nursery() as nursery:
        bookies = RegisteredBookies(store, options or RemoteOptions(), nursery, choice)
        bookies.learn(*registrations)
        bookies.learn_racks(b"" if node is None else node.value)
        nursery.start_soon(bookies.follow)
        nursery.start_soon(bookies.follow_racks, racks_from or store)
        nursery.start_soon(bookies.follow_free_bytes)
        nursery.start_soon(bookies.follow_pauses)
        yield bookies


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

    def __init__(
        self,
        store: MetadataStore,
        options: RemoteOptions,
        nursery: trio.Nursery,
        choice: ChoiceOptions | None = None,
    ) -> None:
        self._choice = choice or ChoiceOptions()
        self._health = BookieHealth(self._choice.health)
        self._racks = Racks()
        self._racks_value = b""
        self._free_bytes: dict[str, int] = {}
        self._rules: PlacementRules | None = None
        self._readonly: frozenset[str] = frozenset()
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
        self._take_racks()  # hosts may be known now
        self._readonly = frozenset(values).difference(writable)
        for bookie_id in set(self._writable).difference(writable):
            self._health.left(bookie_id, trio.current_time())
        if writable != self._writable:
            self._writable = writable
            _log.info("bookies that take new entries: %s", ", ".join(writable) or "none")
            self._changed.set()
            self._changed = trio.Event()

    def _locate(self, bookie_id: str, value: bytes) -> None:
        address = address_of(bookie_id, value)
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

    async def check_writable(self, count: int) -> None:
        """As BookieDirectory.check_writable; without effect, as registrations tell it."""

    def rules(self) -> PlacementRules:
        """As BookieDirectory.rules."""
        quarantined = self._health.quarantined(self._writable, trio.current_time())
        rules = self._rules
        if rules is None or rules.quarantined != quarantined:
            racks = {each: self._racks.rack(each, self._host(each)) for each in self._located()}
            known = {each: rack for each, rack in racks.items() if rack is not None}
            options, groups = self._choice.placement, self._racks.groups
            rules = PlacementRules(options, known, groups, dict(self._free_bytes), quarantined)
            self._rules = rules
        return rules

    def _located(self) -> set[str]:
        """Bookies that are or were registered, or have a rack."""
        return {*self._addresses, *self._writable, *self._racks.by_bookie}

    def _host(self, bookie_id: str) -> str | None:
        address = self._addresses.get(bookie_id) or _address_in(bookie_id)
        return None if address is None else address[0]

    def read_rank(self, bookie_id: str) -> ReadRank:
        """As BookieDirectory.read_rank."""
        if not self._choice.reorder_reads:
            return ReadRank.GOOD
        is_writable = bookie_id in self._writable
        if not is_writable and bookie_id not in self._readonly:
            return ReadRank.AWAY
        if self._health.is_slow(bookie_id, trio.current_time()):
            return ReadRank.SLOW
        return ReadRank.GOOD if is_writable else ReadRank.READ_ONLY

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        """As BookieDirectory.failed."""
        if bookie_id not in self._writable and bookie_id not in self._readonly:
            return  # it stopped, and said so
        if self._health.failed(bookie_id, error, trio.current_time()):
            options = self._choice.health
            _log.warning(
                "bookie %s failed more than %d times within %g s, and gets no new ledgers for %g s "
                "as long as there are others: %s",
                *(bookie_id, options.errors_max, options.interval_s, options.quarantine_s, error),
            )

    def slow(self, bookie_id: str) -> None:
        """As BookieDirectory.slow."""
        self._health.slow(bookie_id, trio.current_time())

    def learn_racks(self, value: bytes) -> None:
        """Take the racks in the value of the node."""
        try:
            parse_racks(value, self._host)
        except ValueError as error:
            _log.warning("the bookies' racks stay as they were: %s", error)
        else:
            self._racks_value = value
            self._take_racks()

    def _take_racks(self) -> None:
        self._racks = parse_racks(self._racks_value, self._host)
        self._rules = None

    async def follow_racks(self, store: MetadataStore) -> None:
        """Read the racks whenever they change, for ever."""
        while True:
            try:
                async with store.watch(BOOKIES) as changes:
                    while True:
                        node = await store.get(BOOKIES)
                        self.learn_racks(b"" if node is None else node.value)
                        await changes.receive()
            except (MetadataError, trio.EndOfChannel) as error:
                _log.warning("the bookies' racks can't be read: %s", error)
            await trio.sleep(RETRY_S)

    async def follow_free_bytes(self) -> None:
        """Ask the bookies for their free space, for ever; never without placement by weight."""
        ask = self._choice.free_bytes
        if not self._choice.placement.by_weight:
            return
        while True:
            due = trio.current_time() + self._choice.free_bytes_interval_s
            wanted = set(self._writable)
            for bookie_id in tuple(wanted):
                try:
                    self._free_bytes[bookie_id] = await ask(self.port(bookie_id))
                    wanted.discard(bookie_id)
                except BookkeeperError as error:
                    _log.warning("bookie %s doesn't tell its free space: %s", bookie_id, error)
                self._rules = None
            if wanted:
                due = trio.current_time() + self._choice.free_bytes_retry_s
            with trio.move_on_at(due):
                while wanted or set(self._writable) <= self._free_bytes.keys():
                    await self.wait_change()

    async def follow_pauses(self) -> None:
        """Find the times in which this process was stopped, for ever."""
        while True:
            since = trio.current_time()
            await trio.sleep(PULSE_S)
            now = trio.current_time()
            if now - since >= PULSE_S + STILL_S_MIN:
                _log.warning("this process stood still for %.1f s", now - since - PULSE_S)
                self._health.stood_still(since, now)

    async def wait_change(self) -> None:
        """As BookieDirectory.wait_change."""
        await self._changed.wait()


def address_of(bookie_id: str, value: bytes) -> tuple[str, int] | None:
    """Host and port of a bookie with that registration; None if neither it nor the id says."""
    return endpoint(value) or _address_in(bookie_id)


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
