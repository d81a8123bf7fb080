"""A client's session at the wire: hand-shake, bounds, commands and their refusals."""

from __future__ import annotations

import pytest
import trio

from geminga_broker._tests.wire import (
    SubType,
    Type,
    message,
    open_broker,
    open_client,
    with_network,
)
from geminga_protocol.commands import (
    connection,
    consuming,
    lookup,
    producing,
    schemas,
    transactions,
)
from geminga_protocol.encode import frame
from geminga_protocol.ids import Position
from geminga_protocol.message_id import EARLIEST_ID, MessageId
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    Schema,
    ServerError,
    TxnAction,
)

TOPIC = "persistent://public/default/a"


async def test_connected_tells_version_size_and_features() -> None:
    async with open_broker() as broker:
        client = broker.client()
        answer = await client.ask(connection.connect("c", protocol_version=25), Type.CONNECTED)
        assert answer.connected.protocol_version == 21
        assert answer.connected.max_message_size == 5 * 1024 * 1024
        assert answer.connected.feature_flags.supports_topic_watchers
        old = broker.client()
        answer = await old.ask(connection.connect("c", protocol_version=10), Type.CONNECTED)
        assert answer.connected.protocol_version == 10
        assert not answer.connected.HasField("max_message_size")


@pytest.mark.parametrize(
    "bad",
    [
        lookup.lookup(TOPIC, 1),
        message(1),
        b"\x00\x00\x00\x02\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x01",
        b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",
    ],
)
async def test_nonsense_before_connect_closes(bad: bytes) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.send(bad)
        assert await client.next() is None
        assert not broker.service.sessions


async def test_a_second_connect_closes() -> None:
    async with open_client() as client:
        await client.send(connection.connect("again"))
        assert await client.next() is None


async def test_ping_is_answered_even_before_connect() -> None:
    async with open_broker() as broker:
        await broker.client().ask(connection.PING, Type.PONG)


async def test_a_silent_client_is_pinged_and_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_client() as client:
        began = trio.current_time()
        await client.expect(Type.PING)
        assert await client.next() is None
        assert 59 < trio.current_time() - began < 62


async def test_a_client_that_answers_pings_stays(autojump_clock: trio.testing.MockClock) -> None:
    async with open_client() as client:
        for _ in range(10):
            await client.expect(Type.PING)
            await client.send(connection.PONG)
        assert trio.current_time() > 290


async def test_unknown_and_server_commands_are_ignored() -> None:
    async with open_client() as client:
        unknown = b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x63"
        await client.send(unknown, consuming.reached_end_of_topic(1))
        await client.ask(connection.PING, Type.PONG)


async def test_a_request_without_its_required_fields_is_refused_alone() -> None:
    broken = BaseCommand(type=Type.LOOKUP, lookupTopic=CommandLookupTopic(request_id=7))
    body = broken.SerializePartialToString()
    raw = (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    async with open_client() as client:
        answer = await client.ask(raw, Type.ERROR)
        assert answer.error.request_id == 7
        await client.ask(connection.PING, Type.PONG)


async def test_a_frame_above_the_limit_closes_after_what_came_before_it() -> None:
    async with open_client(with_network(max_message_size_bytes=1000)) as client:
        await client.send(connection.PING + (20_000).to_bytes(4, "big") + bytes(100))
        await client.expect(Type.PONG)
        assert await client.next() is None


async def test_lookup_and_partitions() -> None:
    async with open_client() as client:
        answer = (
            await client.ask(lookup.lookup(TOPIC, 1), Type.LOOKUP_RESPONSE)
        ).lookupTopicResponse
        assert (answer.request_id, answer.brokerServiceUrl) == (1, "pulsar://here:1")
        assert answer.authoritative
        answer = await client.ask(lookup.lookup("t/n/x", 2), Type.LOOKUP_RESPONSE)
        assert answer.lookupTopicResponse.error == ServerError.TopicNotFound
        answer = await client.ask(lookup.lookup("a/b", 3), Type.LOOKUP_RESPONSE)
        assert answer.lookupTopicResponse.error == ServerError.InvalidTopicName
        kind = Type.PARTITIONED_METADATA_RESPONSE
        answer = await client.ask(lookup.partitioned_metadata(TOPIC, 4), kind)
        assert answer.partitionMetadataResponse.partitions == 0
        request = lookup.partitioned_metadata("none", 5, auto_create=False)
        answer = await client.ask(request, kind)
        assert answer.partitionMetadataResponse.error == ServerError.TopicNotFound


async def test_publish_and_consume() -> None:
    async with open_client() as client:
        await client.subscribe(TOPIC)
        await client.open_producer(TOPIC)
        await client.send(message(0, b"one"), message(1, b"two"))
        receipts = [await client.expect(Type.SEND_RECEIPT) for _ in range(2)]
        ids = [each.command.send_receipt.message_id for each in receipts]
        assert [each.command.send_receipt.sequence_id for each in receipts] == [0, 1]
        await client.send(consuming.flow(1, 10))
        for expected, place in zip((b"one", b"two"), ids, strict=True):
            got = await client.expect(Type.MESSAGE)
            assert got.payload is not None
            assert bytes(got.payload).endswith(expected)
            assert got.command.message.message_id.entryId == place.entryId
        acked = [MessageId(place.ledgerId, place.entryId) for place in ids]
        answer = await client.ask(consuming.ack(1, acked, request_id=9), Type.ACK_RESPONSE)
        assert not answer.ackResponse.HasField("error")
        answer = await client.ask(
            consuming.get_last_message_id(1, 3), Type.GET_LAST_MESSAGE_ID_RESPONSE
        )
        assert answer.getLastMessageIdResponse.last_message_id.entryId == ids[1].entryId
        answer = await client.ask(consuming.consumer_stats(4, 1), Type.CONSUMER_STATS_RESPONSE)
        assert answer.consumerStatsResponse.msgBacklog == 0


async def test_a_bad_checksum_is_refused_alone() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        bad = bytearray(message(1))
        bad[-1] ^= 1
        await client.send(message(0), bytes(bad), message(2))
        answers = [await client.next() for _ in range(3)]
        errors = [a.command.send_error for a in answers if a and a.type == Type.SEND_ERROR]
        assert [(e.sequence_id, e.error) for e in errors] == [(1, ServerError.ChecksumError)]
        receipts = [a.command.send_receipt for a in answers if a and a.type == Type.SEND_RECEIPT]
        assert [r.sequence_id for r in receipts] == [0, 2]


async def test_a_send_without_payload_is_refused() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        empty = frame(producing.send_command(1, 5))
        answer = await client.ask(empty, Type.SEND_ERROR)
        assert answer.send_error.sequence_id == 5


async def test_send_for_a_producer_that_never_was_closes() -> None:
    async with open_client() as client:
        await client.send(message(0, producer_id=9))
        assert await client.next() is None


async def test_sends_after_the_broker_closed_the_producer_are_dropped() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        from geminga_protocol.topic_name import TopicName

        assert await broker.service.unload_topic(TopicName.parse(TOPIC))
        assert (await client.expect(Type.CLOSE_PRODUCER)).command.close_producer.producer_id == 1
        await client.send(message(0))
        await client.ask(connection.PING, Type.PONG)
        await client.open_producer(TOPIC)


async def test_interleaved_producers_keep_their_orders() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC, 1)
        await client.open_producer(TOPIC, 2)
        frames = [message(n, producer_id=1 + n % 2) for n in range(20)]
        await client.send(*frames)
        seen: dict[int, list[int]] = {1: [], 2: []}
        for _ in frames:
            receipt = (await client.expect(Type.SEND_RECEIPT)).command.send_receipt
            seen[receipt.producer_id].append(receipt.sequence_id)
        assert seen == {1: list(range(0, 20, 2)), 2: list(range(1, 20, 2))}


async def test_opening_twice_is_answered_again_and_closing_forgets() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        await client.open_producer(TOPIC)
        await client.ask(producing.close_producer(1, 5), Type.SUCCESS)
        await client.ask(producing.close_producer(1, 6), Type.SUCCESS)
        await client.ask(producing.close_producer(77, 7), Type.ERROR)
        await client.subscribe(TOPIC)
        await client.subscribe(TOPIC)
        await client.ask(consuming.close_consumer(1, 8), Type.SUCCESS)
        await client.ask(consuming.close_consumer(1, 9), Type.SUCCESS)
        await client.ask(consuming.close_consumer(77, 9), Type.ERROR)


async def test_producer_opened_and_closed_in_one_breath() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        open_it = producing.producer(TOPIC, 1, 1, producer_name="p")
        await client.send(open_it, producing.close_producer(1, 2))
        answer = await client.expect(Type.SUCCESS)
        assert answer.command.success.request_id == 2
        await client.ask(producing.producer(TOPIC, 1, 3, producer_name="p"), Type.PRODUCER_SUCCESS)
        assert list(broker.service.topics[TOPIC].producers) == ["p"]


async def test_unknown_consumers() -> None:
    async with open_client() as client:
        await client.send(consuming.flow(5, 1), consuming.redeliver_unacknowledged(5))
        answer = await client.ask(
            consuming.ack(5, [MessageId(1, 1)], request_id=2), Type.ACK_RESPONSE
        )
        assert answer.ackResponse.error == ServerError.ConsumerNotFound
        for request in (
            consuming.seek(5, 1, message_id=EARLIEST_ID),
            consuming.unsubscribe(5, 1),
            consuming.get_last_message_id(5, 1),
        ):
            assert (await client.ask(request, Type.ERROR)).error.request_id == 1
        answer = await client.ask(consuming.consumer_stats(1, 5), Type.CONSUMER_STATS_RESPONSE)
        assert answer.consumerStatsResponse.error_code == ServerError.ConsumerNotFound


async def test_seek_closes_the_consumer_which_reads_again() -> None:
    async with open_client() as client:
        await client.subscribe(TOPIC)
        await client.open_producer(TOPIC)
        await client.send(message(0))
        await client.expect(Type.SEND_RECEIPT)
        await client.send(consuming.flow(1, 10))
        first = (await client.expect(Type.MESSAGE)).command.message.message_id
        await client.send(consuming.seek(1, 5, message_id=EARLIEST_ID))
        kinds = [frame.type for frame in (await client.next(), await client.next()) if frame]
        assert sorted(kinds) == [Type.SUCCESS, Type.CLOSE_CONSUMER]
        await client.subscribe(TOPIC)
        await client.send(consuming.flow(1, 10))
        again = (await client.expect(Type.MESSAGE)).command.message.message_id
        assert Position(again.ledgerId, again.entryId) == Position(first.ledgerId, first.entryId)


async def test_unsubscribe() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC)
        await client.ask(consuming.unsubscribe(1, 5), Type.SUCCESS)
        assert not broker.service.topics[TOPIC].subscriptions


async def test_topics_of_a_namespace() -> None:
    async with open_client() as client:
        for name in ("a", "b", "non-persistent://public/default/c"):
            await client.open_producer(name)
            await client.ask(producing.close_producer(1, 5), Type.SUCCESS)
        kind = Type.GET_TOPICS_OF_NAMESPACE_RESPONSE

        async def topics(**options: object) -> object:
            request = lookup.get_topics_of_namespace(1, "public/default", **options)  # type: ignore[arg-type]
            return (await client.ask(request, kind)).getTopicsOfNamespaceResponse

        prefix = "persistent://public/default/"
        answer = await topics()
        assert list(answer.topics) == [prefix + "a", prefix + "b"]
        assert not answer.filtered
        everything = await topics(mode=CommandGetTopicsOfNamespace.ALL)
        assert len(everything.topics) == 3
        some = await topics(topics_pattern="public/default/b.*")
        assert (list(some.topics), some.filtered) == ([prefix + "b"], True)
        same = await topics(topics_hash=answer.topics_hash)
        assert (list(same.topics), same.changed) == ([], False)


async def test_a_watcher_hears_of_new_topics() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        request = lookup.watch_topic_list(1, 3, "public/default", "public/default/a.*")
        answer = await client.ask(request, Type.WATCH_TOPIC_LIST_SUCCESS)
        assert list(answer.watchTopicListSuccess.topic) == []
        other = broker.client()
        await other.connect()
        await other.open_producer("b")
        await other.open_producer("a1", 2)
        update = (await client.expect(Type.WATCH_TOPIC_UPDATE)).command.watchTopicUpdate
        assert list(update.new_topics) == ["persistent://public/default/a1"]
        await client.ask(lookup.watch_topic_list_close(2, 3), Type.SUCCESS)
        bad = lookup.watch_topic_list(4, 5, "public/default", "(a+)+")
        assert (await client.ask(bad, Type.ERROR)).error.error == ServerError.NotAllowedError


async def test_schemas() -> None:
    schema = Schema(name="s", schema_data=b"{}", type=Schema.Type.Json)
    async with open_client() as client:
        answer = await client.ask(schemas.get_schema(1, TOPIC), Type.GET_SCHEMA_RESPONSE)
        assert answer.getSchemaResponse.error_code == ServerError.TopicNotFound
        answer = await client.ask(
            producing.producer(TOPIC, 1, 2, schema=schema), Type.PRODUCER_SUCCESS
        )
        assert answer.producer_success.schema_version == bytes(8)
        kind = Type.GET_OR_CREATE_SCHEMA_RESPONSE
        answer = await client.ask(schemas.get_or_create_schema(3, TOPIC, schema), kind)
        assert answer.getOrCreateSchemaResponse.schema_version == bytes(8)
        answer = await client.ask(schemas.get_schema(4, TOPIC), Type.GET_SCHEMA_RESPONSE)
        assert answer.getSchemaResponse.schema == schema


async def test_transactions_are_refused_in_their_own_words() -> None:
    txn = (1, 2)
    cases = [
        (transactions.tc_client_connect(1, 0), Type.TC_CLIENT_CONNECT_RESPONSE),
        (transactions.new_txn(1, 1, 0), Type.NEW_TXN_RESPONSE),
        (transactions.add_partition(1, txn, []), Type.ADD_PARTITION_TO_TXN_RESPONSE),
        (transactions.add_subscription(1, txn, []), Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE),
        (transactions.end_txn(1, txn, TxnAction.COMMIT), Type.END_TXN_RESPONSE),
        (
            transactions.end_txn_on_partition(1, txn, TOPIC, TxnAction.ABORT, 0),
            Type.END_TXN_ON_PARTITION_RESPONSE,
        ),
        (
            transactions.end_txn_on_subscription(1, txn, (TOPIC, "s"), TxnAction.ABORT, 0),
            Type.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        ),
    ]
    async with open_client() as client:
        for request, kind in cases:
            await client.ask(request, kind)


async def test_requests_for_bad_topics_are_refused() -> None:
    async with open_client() as client:
        bad = [
            (producing.producer("t/n/x", 1, 1), ServerError.TopicNotFound),
            (producing.producer("a/b", 1, 1), ServerError.InvalidTopicName),
            (
                consuming.subscribe(
                    "x",
                    "s",
                    SubType.Shared,
                    1,
                    1,
                    consuming.SubscribeOptions(force_topic_creation=False),
                ),
                ServerError.TopicNotFound,
            ),
        ]
        for request, code in bad:
            assert (await client.ask(request, Type.ERROR)).error.error == code


async def test_shutdown_tells_clients_and_ends_their_sessions() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        await client.subscribe(TOPIC)
        await broker.service.shutdown()
        kinds = {(await client.next() or pytest.fail("closed")).type for _ in range(2)}
        assert kinds == {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER}
        assert await client.next() is None
        late = broker.client()
        await late.connect()
        answer = await late.ask(producing.producer(TOPIC, 1, 1), Type.ERROR)
        assert answer.error.error == ServerError.ServiceNotReady


async def test_health() -> None:
    async with open_broker() as broker:
        await broker.service.check_health()
        await broker.service.check_health()
        assert await broker.service.namespaces.exists("pulsar/here:2")


async def test_a_client_that_never_reads_is_not_read() -> None:
    async with open_broker() as broker:
        client = broker.client(sockets=True)
        await client.connect()
        (session,) = broker.service.sessions
        with trio.fail_after(5):
            while session.reading:
                with trio.move_on_after(0.02):
                    await client.send(connection.PING * 2000)
        assert session.stream.pending_bytes < 2 << 20
        await client.stream.aclose()
