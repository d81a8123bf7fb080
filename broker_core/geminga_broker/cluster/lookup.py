"""Lookup of a topic's owner (spec CL-03, CL-05)."""

from __future__ import annotations

from time import perf_counter

from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.errors import BrokerError
from geminga_broker.metrics.counts import LookupCounts
from geminga_broker.ownership.finder import Located, OwnerFinder
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.logs import shown


class NoSuchListener(BrokerError):
    """The client names an advertised listener that the broker doesn't have."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.ServiceNotReady, message)


class Lookup:
    """Finds the owner of topics; the number of running lookups is bounded."""

    def __init__(self, namespaces: Namespaces, finder: OwnerFinder, lookups_max: int) -> None:
        self._namespaces = namespaces
        self._finder = finder
        self.lookups_max = lookups_max
        """May be changed."""
        self.counts = LookupCounts()
        self.running = 0
        """Lookups that have no answer yet."""
        self.is_open = False
        """Whether the broker serves: its addresses are known, and it isn't stopping."""

    async def locate(
        self, topic: TopicName, listener: str = "", *, authoritative: bool = False
    ) -> Located:
        """Where the topic's clients go. See `OwnerFinder.find` for `authoritative`.

        Raises BrokerError: TooManyRequests, TopicNotFound (no such namespace), MetadataError (the
        bundle is being unloaded), ServiceNotReady (no broker can own it), NoSuchListener; and the
        store's errors.
        """
        began_s = perf_counter()
        try:
            found = await self._in_turn(topic, listener, authoritative)
        except Exception:
            self.counts.failures += 1
            raise
        self.counts.answered(perf_counter() - began_s, redirect=found.redirect)
        return found

    async def _in_turn(self, topic: TopicName, listener: str, authoritative: bool) -> Located:
        self._check_open()
        if self.running >= self.lookups_max:
            text = "Failed due to too many pending lookup requests"
            raise BrokerError(ServerError.TooManyRequests, text)
        self.running += 1
        try:
            return await self._locate(topic, listener, authoritative)
        finally:
            self.running -= 1

    def known(self, topic: TopicName, listener: str = "") -> Located | None:
        """As `locate`, if nothing needs to be read or decided for it. Raises BrokerError:
        MetadataError (the bundle is being unloaded), ServiceNotReady (starting or stopping),
        NoSuchListener.
        """
        began_s = perf_counter()
        self._check_open()
        bundle = self._namespaces.known_bundle_of(topic)
        found = None if bundle is None else self._finder.known(bundle)
        if found is None:
            return None
        named = _named(found, listener)
        self.counts.answered(perf_counter() - began_s, redirect=named.redirect)
        return named

    def _check_open(self) -> None:
        if not self.is_open:
            text = "the broker is starting or shutting down"
            raise BrokerError(ServerError.ServiceNotReady, text)

    async def _locate(self, topic: TopicName, listener: str, authoritative: bool) -> Located:
        try:
            if not await self._namespaces.exists(topic.namespace):
                raise ResourceMissing(topic.namespace)
            bundle = await self._namespaces.bundle_of(topic)
        except ResourceMissing:
            text = f"Namespace not found {topic.namespace}"
            raise BrokerError(ServerError.TopicNotFound, text) from None
        found = await self._finder.find(
            bundle, authoritative=authoritative, non_persistent=not topic.is_persistent
        )
        if found is None:
            text = f"No broker was available to own {topic}"
            raise BrokerError(ServerError.ServiceNotReady, text)
        return _named(found, listener)


def _named(found: Located, listener: str) -> Located:
    """With the addresses of the broker's listener of that name; all of them without a name."""
    if not listener:
        return found
    record = found.listeners.get(listener)
    if record is None:
        raise NoSuchListener(f"the broker has no listener named {shown(listener)}")
    named = record.addresses
    return found._replace(
        addresses=named._replace(
            web_url=named.web_url or found.addresses.web_url,
            web_url_tls=named.web_url_tls or found.addresses.web_url_tls,
        )
    )
