"""Lookup of a topic's owner (spec CL-03, CL-05).

There is one broker, which owns every bundle. In a cluster `Lookup.locate` will use ownership,
redirects and the leader's decision.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.errors import BrokerError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.logs import shown


class Addresses(NamedTuple):
    """Addresses of this broker for clients; empty where it has no listener."""

    broker_url: str
    web_url: str
    broker_url_tls: str = ""
    web_url_tls: str = ""

    @property
    def broker_id(self) -> str:
        """Apache's broker id: `host:port` of the web service, or of another port without it."""
        urls = (self.web_url, self.web_url_tls, self.broker_url)
        return urlsplit(next((url for url in urls if url), self.broker_url_tls)).netloc


class NoSuchListener(BrokerError):
    """The client names an advertised listener that the broker doesn't have."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.ServiceNotReady, message)


class Lookup:
    """Finds the owner of topics; the number of running lookups is bounded."""

    def __init__(self, namespaces: Namespaces, lookups_max: int) -> None:
        self._namespaces = namespaces
        self._lookups_max = lookups_max
        self._running = 0
        self.addresses = Addresses("", "")

    async def locate(self, topic: TopicName, listener: str = "") -> Addresses:
        """Addresses of the topic's owner. Raises BrokerError TooManyRequests, TopicNotFound (no
        such namespace), NoSuchListener (for any name, as there are no named listeners).
        """
        if not (self.addresses.broker_url or self.addresses.broker_url_tls):
            raise BrokerError(ServerError.ServiceNotReady, "the broker is starting")
        if self._running >= self._lookups_max:
            raise BrokerError(ServerError.TooManyRequests, "too many lookups are running")
        self._running += 1
        try:
            if not await self._namespaces.exists(topic.namespace):
                text = f"Namespace not found {topic.namespace}"
                raise BrokerError(ServerError.TopicNotFound, text)
        finally:
            self._running -= 1
        if listener:
            raise NoSuchListener(f"the broker has no listener named {shown(listener)}")
        return self.addresses
