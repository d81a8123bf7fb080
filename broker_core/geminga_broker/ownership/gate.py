"""Lets topics of bundles in that this broker owns (spec CL-04)."""

from __future__ import annotations

from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.finder import OwnerFinder
from geminga_broker.ownership.owned import BundleOwnership
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName


class BundleGate:
    """Asked before a topic is loaded, and once it is. See `cluster.load_needs.Gate`."""

    def __init__(
        self, namespaces: Namespaces, finder: OwnerFinder, ownership: BundleOwnership
    ) -> None:
        self._namespaces = namespaces
        self._finder = finder
        self.tenure = ownership.tenure

    async def admit(self, topic: TopicName) -> BundleId:
        """The topic's bundle, owned by this broker: if nobody owns it and this broker shall, it
        does from now on. Raises BrokerError ServiceNotReady, TopicNotFound (no namespace),
        MetadataError (while it is being unloaded); MetadataError of the store.
        """
        try:
            bundle = await self._namespaces.bundle_of(topic)
        except ResourceMissing:
            text = f"Namespace not found {topic.namespace}"
            raise BrokerError(ServerError.TopicNotFound, text) from None
        await self._finder.require_here(bundle)
        return bundle
