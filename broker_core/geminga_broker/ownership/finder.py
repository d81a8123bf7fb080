"""Which broker serves a bundle, and who decides it (spec CL-05, CL-06; Apache's
NamespaceService.findBrokerServiceUrl and searchForCandidateBroker).

An owner that is known is told at once, by any broker. A bundle without one goes where the load
manager says; with a centralized load manager the leader says it, and other brokers redirect to the
leader. A redirect of the leader is authoritative: who gets it takes the bundle without asking.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.brokers import ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.election import Election
from geminga_broker.ownership.owned import BundleOwnership, Exists
from geminga_broker.ownership.records import ListenerRecord, OwnerRecord
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime.single_flight import SingleFlight

_log = logging.getLogger(__name__)

_NAMED = (
    re.compile(r"pulsar/(?:[^/]+/)?(?P<broker>[^/]+:\d+)"),
    re.compile(r"sla-monitor/[^/]+/(?P<broker>[^/]+:\d+)"),
)
"""Namespaces that belong to the broker whose id they end with: heartbeats and SLA monitors."""


class Placement(Protocol):
    """Says where bundles without an owner go: the load manager."""

    @property
    def centralized(self) -> bool:
        """Whether only the leader decides."""

    async def choose(self, bundle: BundleId) -> str | None:
        """The id of the broker that shall own it; None if there is none, and why is logged. Raises
        MetadataError."""

    def has_non_persistent(self, bundle: BundleId) -> None:
        """A non-persistent topic of the bundle was asked for: from now on only brokers that serve
        such topics are chosen for it (Apache's `NamespaceBundle.hasNonPersistentTopic`).
        """


class Located(NamedTuple):
    """Where a topic's clients go: to its owner, or on to a broker that knows more."""

    addresses: Addresses
    redirect: bool = False
    authoritative: bool = True
    listeners: Mapping[str, ListenerRecord] = MappingProxyType({})
    """The broker's named listeners."""


def named_broker(namespace: str) -> str | None:
    """The broker that a namespace of heartbeats or of an SLA monitor belongs to."""
    for pattern in _NAMED:
        if (found := pattern.fullmatch(namespace)) is not None:
            return found["broker"]
    return None


class OwnerFinder:
    """Finds owners; makes this broker one if it was chosen."""

    def __init__(
        self,
        ownership: BundleOwnership,
        election: Election,
        brokers: ActiveBrokers,
        placement: Placement,
        exists: Exists,
    ) -> None:
        self.placement = placement
        self.is_closing = False
        """Whether the broker stops: it takes no bundle any more, whoever asks."""
        self._ownership = ownership
        self._election = election
        self._brokers = brokers
        self._exists = exists
        self._running: SingleFlight[tuple[BundleId, bool], Located | None] = SingleFlight()

    async def find(
        self,
        bundle: BundleId,
        *,
        authoritative: bool = False,
        read_only: bool = False,
        non_persistent: bool = False,
    ) -> Located | None:
        """Where the bundle is served. `authoritative`: another broker has chosen this one to own
        it. `read_only`: tell the owner, but don't make one. `non_persistent`: for a topic of that
        kind. None if nobody can own it.

        Raises BrokerError MetadataError while the bundle is being unloaded, ServiceNotReady if it
        would be this broker's and that stops, or a split has replaced it, and the store's errors.
        """
        if non_persistent:
            self.placement.has_non_persistent(bundle)
        if self._ownership.holds(bundle):
            return _of_owner(bundle, self._ownership.record())
        owner = await self._ownership.owner(bundle)
        if owner is not None and self._ownership.is_of_earlier_life(bundle, owner):
            owner = await self._acquire(bundle)
        if owner is not None:
            return _of_owner(bundle, owner)
        if read_only:
            return None
        search = partial(self._search, bundle, authoritative)
        return await self._running.run((bundle, authoritative), search)

    def known(self, bundle: BundleId) -> Located | None:
        """As `find`, if nothing needs to be read, asked or decided for it. Raises BrokerError
        MetadataError while the bundle is being unloaded.
        """
        if self._ownership.holds(bundle):
            return _of_owner(bundle, self._ownership.record())
        owner = self._ownership.known_owner(bundle)
        if owner is None or self._ownership.is_of_earlier_life(bundle, owner):
            return None
        return _of_owner(bundle, owner)

    async def _search(self, bundle: BundleId, authoritative: bool) -> Located | None:
        chosen, final = await self._candidate(bundle, authoritative)
        if chosen is None:
            return None  # who chooses has said why
        if chosen == self._ownership.addresses.broker_id:
            return _of_owner(bundle, await self._acquire(bundle))
        record = await self._brokers.record(chosen)
        if record is None:
            _log.warning("bundle=%s broker %s that was chosen for it is gone", bundle, chosen)
            return None
        return Located(record.addresses, True, final, record.advertised_listeners)

    async def _acquire(self, bundle: BundleId) -> OwnerRecord:
        if self.is_closing:
            raise not_served(bundle, self._ownership.addresses)
        owner = await self._ownership.take(bundle, self._exists)
        if owner is None:
            raise not_served(bundle, self._ownership.addresses)
        return owner

    async def _candidate(self, bundle: BundleId, authoritative: bool) -> tuple[str | None, bool]:
        """The broker to go to, and whether it shall own the bundle."""
        own_id = self._ownership.addresses.broker_id
        named = named_broker(bundle.namespace)
        is_leader = self._election.is_leader
        if named is not None and await self._brokers.is_active(named):
            return named, is_leader
        if authoritative:
            return own_id, is_leader
        if self.placement.centralized and not is_leader:
            leader = await self._election.leader()
            other = leader is not None and leader.broker_id != own_id
            if leader is not None and other and await self._brokers.is_active(leader.broker_id):
                return leader.broker_id, False
            _log.info("bundle=%s without an active leader: decided here", bundle)
        return await self.placement.choose(bundle), True

    async def require_here(self, bundle: BundleId) -> None:
        """Own the bundle, if it has no owner and shall be here. Raises BrokerError ServiceNotReady
        with Apache's text if another broker has it, MetadataError while it is being unloaded, and
        the store's errors.
        """
        if not self._ownership.holds(bundle):
            found = await self.find(bundle)
            if found is None or found.redirect or not self._ownership.holds(bundle):
                raise not_served(bundle, self._ownership.addresses)


def _of_owner(bundle: BundleId, owner: OwnerRecord) -> Located:
    if owner.disabled:
        raise BrokerError(ServerError.MetadataError, f"Namespace bundle {bundle} is being unloaded")
    return Located(owner.addresses, listeners=owner.advertised_listeners)


def not_served(bundle: BundleId, addresses: Addresses) -> BrokerError:
    """The refusal of topics of a bundle that another broker owns."""
    return BrokerError(
        ServerError.ServiceNotReady,
        f"Namespace bundle for topic ({bundle}) not served by this instance:"
        f"{addresses.broker_id}. Please redo the lookup. Request is denied: "
        f"namespace={bundle.namespace}",
    )
