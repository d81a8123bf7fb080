"""Asks another broker to own a bundle, so that its clients can be told where they go (CL-11)."""

from __future__ import annotations

import logging
from typing import Protocol
from urllib.parse import quote

import msgspec

from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.topic.moving import NOWHERE
from geminga_protocol.topic_name import TopicName
from geminga_runtime.json_text import BadJson, read_json

_log = logging.getLogger(__name__)


class Caller(Protocol):
    """`admin.peers.Peers`."""

    async def call(self, broker_id: str, method: str, path_and_query: str) -> PeerAnswer:
        """One call of a registered broker. Raises PeerUnreachable."""


class _Answer(msgspec.Struct, rename="camel"):
    """Apache's LookupData."""

    broker_url: str = ""
    broker_url_tls: str = ""
    http_url: str = ""
    http_url_tls: str = ""


class LookupHandover:
    """Looks one of the bundle's topics up at the next owner, as a leader's redirect would: it owns
    the bundle then. An `ownership.unloading.Handover`.
    """

    def __init__(self, peers: Caller) -> None:
        self._peers = peers

    async def __call__(self, broker_id: str, bundle: BundleId, topics: list[str]) -> Addresses:
        """The addresses of the broker with that id; NOWHERE if it doesn't own the bundle, or if
        there is no topic whose clients need to know.
        """
        if not topics:
            return NOWHERE
        name = TopicName.parse(topics[0])
        path = f"/lookup/v2/topic/{name.domain}/{name.namespace}/{quote(name.local_name, safe='')}"
        try:
            answer = await self._peers.call(broker_id, "GET", f"{path}?authoritative=true")
        except PeerUnreachable as error:
            _log.warning("bundle=%s is not taken by broker %s: %s", bundle, broker_id, error)
            return NOWHERE
        found = _addresses(answer)
        if found.broker_id != broker_id:
            _log.warning(
                "bundle=%s is not taken by broker %s: %s",
                bundle,
                broker_id,
                answer.reason if found == NOWHERE else f"{found.broker_id} owns it",
            )
            return NOWHERE
        return found


def _addresses(answer: PeerAnswer) -> Addresses:
    if answer.status != 200:
        return NOWHERE
    try:
        found = read_json(answer.body, _Answer)
    except BadJson:
        return NOWHERE
    return Addresses(found.broker_url, found.http_url, found.broker_url_tls, found.http_url_tls)
