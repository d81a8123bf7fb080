"""The next owner is asked, and its answer is looked at."""

from __future__ import annotations

import pytest

from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.handing_over import LookupHandover
from geminga_broker.topic.moving import NOWHERE

BUNDLE = BundleId("public/default", "0x00000000_0xffffffff")
TOPIC = "persistent://public/default/a b%2Fc"
TAKEN = b'{"brokerUrl": "pulsar://b:6650", "httpUrl": "http://b:8080", "nativeUrl": "x"}'


class Peers:
    def __init__(self, status: int, body: bytes) -> None:
        self.answer: PeerAnswer | None = PeerAnswer(status, body)
        self.calls: list[tuple[str, str, str]] = []

    async def call(self, broker_id: str, method: str, path_and_query: str) -> PeerAnswer:
        self.calls.append((broker_id, method, path_and_query))
        if self.answer is None:
            raise PeerUnreachable("it is gone")
        return self.answer


async def test_it_owns_the_bundle_then() -> None:
    peers = Peers(200, TAKEN)
    found = await LookupHandover(peers)("b:8080", BUNDLE, [TOPIC])
    assert found == Addresses("pulsar://b:6650", "http://b:8080")
    path = "/lookup/v2/topic/persistent/public/default/a%20b%252Fc?authoritative=true"
    assert peers.calls == [("b:8080", "GET", path)]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, TAKEN.replace(b"b:8080", b"c:8080")),
        (200, b"{"),
        (200, b"[]"),
        (200, TAKEN.replace(b"b:8080", b"\xff")),
        (503, b'{"reason": "no broker"}'),
        (404, b""),
    ],
)
async def test_clients_look_up_anew_otherwise(status: int, body: bytes) -> None:
    assert await LookupHandover(Peers(status, body))("b:8080", BUNDLE, [TOPIC]) == NOWHERE


async def test_a_broker_that_is_not_there() -> None:
    peers = Peers(200, b"")
    peers.answer = None
    assert await LookupHandover(peers)("b:8080", BUNDLE, [TOPIC]) == NOWHERE


async def test_without_topics_nobody_is_asked() -> None:
    peers = Peers(200, TAKEN)
    assert await LookupHandover(peers)("b:8080", BUNDLE, []) == NOWHERE
    assert peers.calls == []
