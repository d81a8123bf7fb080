"""Lookups, lists, schemas and transactions at the wire, and refusals."""

from __future__ import annotations

from geminga_broker._tests.wire import (
    SubType,
    Type,
    message,
    open_broker,
    open_client,
)
from geminga_protocol.commands import (
    consuming,
    lookup,
    producing,
    schemas,
)
from geminga_protocol.encode import framed
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    CommandGetTopicsOfNamespace,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    Schema,
    ServerError,
    Subscription,
)

TOPIC = "persistent://public/default/a"


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


async def test_topics_of_a_namespace() -> None:
    async with open_client() as client:
        for name in ("a", "b", "non-persistent://public/default/c"):
            await client.open_producer(name)
            await client.ask(producing.close_producer(1, 5), Type.SUCCESS)
        kind = Type.GET_TOPICS_OF_NAMESPACE_RESPONSE

        async def topics(**options: object) -> object:
            request = lookup.get_topics_of_namespace(1, "public/default", **options)
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


async def test_a_watcher_is_notified_of_new_topics() -> None:
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
        for text, reason in (
            ("(?=a)", "Invalid topics pattern"),
            ("a" * 51, "Pattern longer than maximum: 50"),
        ):
            bad = lookup.watch_topic_list(4, 5, "public/default", text)
            error = (await client.ask(bad, Type.ERROR)).error
            assert error.error == ServerError.NotAllowedError
            assert error.message == f"Unable to create topic list watcher: {reason}"


async def test_schemas() -> None:
    schema = Schema(name="public/default/a", schema_data=b'"int"', type=Schema.Type.Json)
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
    place = Subscription(topic=TOPIC, subscription="s")
    cases = [
        (CommandTcClientConnectRequest(request_id=1, tc_id=0), Type.TC_CLIENT_CONNECT_RESPONSE),
        (CommandNewTxn(request_id=1), Type.NEW_TXN_RESPONSE),
        (CommandAddPartitionToTxn(request_id=1), Type.ADD_PARTITION_TO_TXN_RESPONSE),
        (CommandAddSubscriptionToTxn(request_id=1), Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE),
        (CommandEndTxn(request_id=1), Type.END_TXN_RESPONSE),
        (CommandEndTxnOnPartition(request_id=1, topic=TOPIC), Type.END_TXN_ON_PARTITION_RESPONSE),
        (
            CommandEndTxnOnSubscription(request_id=1, subscription=place),
            Type.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        ),
    ]
    async with open_client() as client:
        for request, kind in cases:
            await client.ask(framed(request), kind)


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


async def test_an_ack_before_a_ledgers_first_entry_acknowledges_none_of_it() -> None:
    """Clients acknowledge -1 cumulatively when a part of the first batch is done (spec BR-05)."""
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC)
        await client.open_producer(TOPIC)
        for number in range(3):
            await client.ask(message(number), Type.SEND_RECEIPT)
        topic = broker.service.topics.loaded[TOPIC]
        subscription = topic.subscriptions["sub"]
        ledger_id = topic.log.last_position.ledger_id
        for each in (MessageId(ledger_id, -1), MessageId(-1, -1)):
            request = consuming.ack(1, [each], cumulative=True, request_id=7)
            await client.ask(request, Type.ACK_RESPONSE)
            assert subscription.backlog_entries() == 3
