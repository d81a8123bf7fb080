"""Answers to commands that the official clients send rarely, from both brokers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from compat_tests.clients.conftest import Peer
from geminga_broker._tests.wire import SubType, Type, WireClient, message
from geminga_protocol.commands import consuming, lookup, producing
from geminga_protocol.ids import LATEST
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

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


async def test_the_last_message_id_of_an_empty_topic_is_minus_one(peer: Peer) -> None:
    topic = peer.topic("empty")
    path = topic.replace("://", "/")

    async def last() -> tuple[int, int]:
        await client.subscribe(topic)
        kind = Type.GET_LAST_MESSAGE_ID_RESPONSE
        found = await client.ask(consuming.get_last_message_id(1, 9), kind)
        place = MessageId.from_wire(found.getLastMessageIdResponse.last_message_id)
        return place.ledger_id, place.entry_id

    async with connected(peer, topic) as client:
        assert await last() == (-1, -1)
        ids = await publish(client, topic, 3)
        assert await last() == (ids[-1].ledger_id, ids[-1].entry_id)
        # Everything consumed and trimmed: it is empty again.
        await client.ask(
            consuming.ack(1, ids[-1:], cumulative=True, request_id=7), Type.ACK_RESPONSE
        )
    await trio.to_thread.run_sync(peer.admin, "PUT", path + "/unload")
    async with connected(peer, topic) as client:
        await client.subscribe(topic)
        await trio.to_thread.run_sync(peer.admin, "DELETE", path + "/truncate")
        for _ in range(10 * PATIENCE_S):
            if await last() == (-1, -1):
                break
            await trio.sleep(0.1)
        assert await last() == (-1, -1)


@pytest.mark.parametrize("limit", [10 * 1024, str(10 * 1024)])
async def test_a_small_backlog_quota_holds_within_a_check(peer: Peer, limit: int | str) -> None:
    namespace = f"public/quota-{uuid.uuid4().hex[:8]}"
    topic = f"persistent://{namespace}/t"

    def set_quota() -> None:
        peer.admin("PUT", f"namespaces/{namespace}", {})
        body = {"limit": limit, "policy": "producer_request_hold"}
        peer.admin("POST", f"namespaces/{namespace}/backlogQuota", body)

    await trio.to_thread.run_sync(set_quota)
    async with connected(peer, topic) as client:
        await client.subscribe(topic)
        await client.open_producer(topic)
        for number in range(10):
            await client.ask(message(number, bytes(1024)), Type.SEND_RECEIPT)
        with trio.fail_after(30):  # the check comes each second, by default each minute
            await client.expect(Type.CLOSE_PRODUCER)
        refused = (await client.ask(producing.producer(topic, 2, 9), Type.ERROR)).error
        assert refused.error == ServerError.ProducerBlockedQuotaExceededError


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_partition_behind_the_last_is_not_there(peer: Peer, domain: str) -> None:
    """The official clients ask for its partitions first, and are told by that."""
    topic = peer.topic("behind", domain)
    peer.admin("PUT", topic.replace("://", "/") + "/partitions", 2)
    async with connected(peer, f"{topic}-partition-0") as client:
        for index, code in ((0, None), (1, None), (2, ServerError.TopicNotFound)):
            asked = lookup.partitioned_metadata(f"{topic}-partition-{index}", 5)
            answer = await client.ask(asked, Type.PARTITIONED_METADATA_RESPONSE)
            told = answer.partitionMetadataResponse
            assert (told.error if told.HasField("error") else None) == code
        last = f"{topic}-partition-2"
        for request in (
            producing.producer(last, 9, 9),
            consuming.subscribe(last, "s", SubType.Shared, 9, 10),
        ):
            refused = (await client.ask(request, Type.ERROR)).error
            assert refused.error == ServerError.TopicNotFound
