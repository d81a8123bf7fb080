"""Answers to commands that the official clients send rarely, from both brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from compat_tests.clients.conftest import Peer
from geminga_broker._tests.wire import SubType, Type, WireClient, message
from geminga_protocol.commands import consuming, lookup
from geminga_protocol.ids import LATEST
from geminga_protocol.message_id import MessageId

PATIENCE_S = 60


@asynccontextmanager
async def connected(peer: Peer, topic: str) -> AsyncIterator[WireClient]:
    """A connection to the broker that owns the topic now."""
    host, _, port = peer.server.service_url.removeprefix("pulsar://").rpartition(":")
    with trio.fail_after(PATIENCE_S):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            client = WireClient(stream)
            await client.connect()
            await client.ask(lookup.lookup(topic, 1), Type.LOOKUP_RESPONSE)
            yield client


async def publish(client: WireClient, topic: str, count: int) -> list[MessageId]:
    """Ids of so many messages."""
    await client.open_producer(topic)
    ids = []
    for number in range(count):
        receipt = (await client.ask(message(number), Type.SEND_RECEIPT)).send_receipt
        ids.append(MessageId(receipt.message_id.ledgerId, receipt.message_id.entryId))
    return ids


async def test_a_cumulative_ack_beyond_the_end_changes_nothing(peer: Peer) -> None:
    topic = peer.topic("beyond")
    path = topic.replace("://", "/") + "/stats"

    def backlog() -> int:
        count: int = peer.admin("GET", path)["subscriptions"]["sub"]["msgBacklog"]
        return count

    async with connected(peer, topic) as client:
        await client.subscribe(topic, kind=SubType.Exclusive)
        last = (await publish(client, topic, 3))[-1]
        for beyond in (
            MessageId(LATEST.ledger_id, LATEST.entry_id),
            MessageId(LATEST.ledger_id, 0),
            MessageId(last.ledger_id + 1000, 0),
            MessageId(last.ledger_id, last.entry_id + 1),
            MessageId(last.ledger_id, last.entry_id + 7, ack_set=(1,)),
        ):
            request = consuming.ack(1, [beyond], cumulative=True, request_id=7)
            answer = (await client.ask(request, Type.ACK_RESPONSE)).ackResponse
            assert not answer.HasField("error")
            assert await trio.to_thread.run_sync(backlog) == 3, beyond
        request = consuming.ack(1, [last], cumulative=True, request_id=8)
        await client.ask(request, Type.ACK_RESPONSE)
        assert await trio.to_thread.run_sync(backlog) == 0
