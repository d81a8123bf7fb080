"""Programs that do wrong: full queues, closed clients, wrong arguments; and plain values."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from compat_tests.clients.conftest import WAIT_MS
from compat_tests.clients.dropin_world import World, until


def full_queue(world: World) -> None:
    results: list[Any] = []
    producer = world.client.create_producer(
        world.topic(),
        max_pending_messages=1,
        batching_enabled=True,
        batching_max_publish_delay_ms=500,
    )
    for _ in range(200):
        producer.send_async(b"x", lambda result, sent: results.append((result, str(sent))))
    until(lambda: len(results) == 200)
    full = [each for each in results if each[0] == world.pulsar.Result.ProducerQueueIsFull]
    world.say(set(full), bool(full), {str(result) for result, _ in results})
    producer = world.client.create_producer(world.topic())
    big = bytes(6 * 1024 * 1024)
    world.error(lambda: producer.send(big))
    producer.send_async(big, lambda result, sent: results.append((result, str(sent))))
    until(lambda: len(results) == 201)
    world.say(results[-1])


def access_modes(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    mode = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=mode.Exclusive)
    world.error(lambda: client.create_producer(topic, access_mode=mode.Exclusive))
    world.error(lambda: client.create_producer(topic))
    second = client.create_producer(topic, access_mode=mode.ExclusiveWithFencing)
    second.send(b"mine")
    world.error(lambda: first.send(b"not mine"))
    named = client.create_producer(world.topic("named"), producer_name="n", initial_sequence_id=41)
    named.send(b"")
    world.say(named.last_sequence_id())
    world.error(lambda: client.create_producer(world.topic("named"), producer_name="n"))


def closed(world: World) -> None:
    pulsar, topic = world.pulsar, world.topic()
    client = world.new_client()
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "sub")
    message_id = producer.send(b"")
    message = consumer.receive(WAIT_MS)
    producer.close()
    world.say(producer.is_connected())
    results: list[Any] = []
    producer.send_async(b"", lambda result, sent: results.append((str(result), str(sent))))
    until(lambda: bool(results))
    world.say(results)
    for call in (producer.close, producer.flush, lambda: producer.send(b"")):
        world.error(call)
    world.error(lambda: client.subscribe(topic, "sub"))
    consumer.close()
    world.say(consumer.is_connected())
    for call in (
        lambda: consumer.receive(50),
        consumer.receive,
        lambda: consumer.acknowledge(message),
        lambda: consumer.negative_acknowledge(message),
        lambda: consumer.seek(message_id),
        consumer.unsubscribe,
    ):
        world.error(call)
    client.close()
    for call in (
        client.close,
        lambda: client.create_producer(topic),
        lambda: client.subscribe(topic, "sub"),
        lambda: client.create_reader(topic, pulsar.MessageId.earliest),
        lambda: client.get_topic_partitions(topic),
        client.shutdown,
    ):
        world.error(call)
    shut = world.new_client()
    left = shut.create_producer(topic)
    shut.shutdown()
    world.error(lambda: left.send(b""))


def wrong_arguments(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    url = world.server.service_url
    text: Any = "text"
    for options in (
        {"authentication": text}, {"operation_timeout_seconds": text}, {"io_threads": text},
        {"message_listener_threads": text}, {"concurrent_lookup_requests": text},
        {"log_conf_file_path": 5}, {"stats_interval_in_seconds": text}, {"use_tls": text},
        {"tls_trust_certs_file_path": 5}, {"tls_allow_insecure_connection": text},
        {"tls_validate_hostname": text}, {"logger": 5}, {"connection_timeout_ms": text},
        {"listener_name": 5}, {"tls_private_key_file_path": 5},
    ):  # fmt: skip
        world.error(partial(pulsar.Client, url, **options))
    for bad in (None, "fakeServiceUrl", "other://127.0.0.1:1", 5):
        world.error(partial(pulsar.Client, bad))
    for options in (
        {"topic": None}, {"producer_name": 5}, {"schema": 5}, {"initial_sequence_id": text},
        {"send_timeout_millis": text}, {"compression_type": None}, {"max_pending_messages": text},
        {"max_pending_messages": -1}, {"block_if_queue_full": text}, {"batching_enabled": text},
        {"batching_max_messages": 1}, {"batching_max_allowed_size_in_bytes": text},
        {"batching_max_publish_delay_ms": text}, {"properties": text}, {"properties": {"a": 1}},
        {"chunking_enabled": True, "batching_enabled": True}, {"encryption_key": 5},
        {"crypto_key_reader": 5}, {"access_mode": 0}, {"batching_type": 1}, {"topic": "a://b"},
    ):  # fmt: skip
        given = {"topic": topic, **options}
        world.error(partial(client.create_producer, **given))
    for options in (
        {"topic": None}, {"subscription_name": None}, {"consumer_type": None}, {"schema": 5},
        {"receiver_queue_size": text}, {"consumer_name": 5}, {"unacked_messages_timeout_ms": text},
        {"unacked_messages_timeout_ms": 500}, {"negative_ack_redelivery_delay_ms": text},
        {"broker_consumer_stats_cache_time_ms": text}, {"is_read_compacted": text},
        {"properties": text}, {"pattern_auto_discovery_period": text}, {"initial_position": 1},
        {"batch_receive_policy": 5}, {"key_shared_policy": 5}, {"crypto_failure_action": 0},
        {"topic": "persistent://a"}, {"topic": "persistent://no-tenant/ns/t"},
    ):  # fmt: skip
        given = {"topic": topic, "subscription_name": "s", **options}
        world.error(partial(client.subscribe, **given))
    for options in (
        {"topic": None}, {"start_message_id": None}, {"start_message_id": 5}, {"schema": 5},
        {"receiver_queue_size": text}, {"reader_name": 5}, {"subscription_role_prefix": 5},
    ):  # fmt: skip
        given = {"topic": topic, "start_message_id": pulsar.MessageId.earliest, **options}
        world.error(partial(client.create_reader, **given))


def wrong_arguments_of_others(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    url = world.server.service_url
    text: Any = "text"
    producer = client.create_producer(topic)
    world.error(lambda: producer.send(5))
    for options in (
        {"properties": text}, {"properties": {"a": 5}}, {"partition_key": 5}, {"ordering_key": 5},
        {"sequence_id": text}, {"sequence_id": -1}, {"replication_clusters": 5},
        {"disable_replication": text}, {"event_timestamp": text}, {"deliver_at": text},
        {"deliver_after": text}, {"deliver_at": 1, "deliver_after": timedelta(seconds=1)},
    ):  # fmt: skip
        world.error(partial(producer.send, b"", **options))
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    for call in (
        lambda: consumer.receive("soon"), lambda: consumer.receive(1.5),
        lambda: consumer.acknowledge(5), lambda: consumer.negative_acknowledge(5),
        lambda: consumer.acknowledge_cumulative(pulsar.MessageId.earliest),
        lambda: pulsar.MessageId.deserialize(b"nothing"), lambda: pulsar.FileLogger(5, "f"),
        lambda: pulsar.ConsoleLogger(5), lambda: pulsar.AuthenticationToken(5),
        lambda: pulsar.AuthenticationBasic(), lambda: pulsar.CryptoKeyReader(1, 2),
        lambda: pulsar.AuthenticationTLS(1, 2), lambda: pulsar.ServiceInfo(5),
        lambda: pulsar.AuthenticationBasic(auth_params_string="{}"),
        lambda: pulsar.MessageBatch().with_message_id(5),
        lambda: client.create_table_view(5), lambda: client.get_topic_partitions(5),
        lambda: pulsar.AutoClusterFailover(pulsar.ServiceInfo(url), []),
    ):  # fmt: skip
        world.error(call)


def values(world: World) -> None:
    """What is known without a broker."""
    pulsar = world.pulsar
    for each in ((-1, -1, -1, -1), (0, 5, 6, -1), (-1, 5, 6, 2), (3, 5, 6, 2)):
        made = pulsar.MessageId(*each)
        world.say(str(made), made.serialize(), made.partition(), made.ledger_id())
        world.say(
            made.entry_id(), made.batch_index(), str(pulsar.MessageId.deserialize(made.serialize()))
        )
    world.say(str(pulsar.MessageId.earliest), str(pulsar.MessageId.latest))
    world.say(pulsar.MessageId.latest.serialize(), pulsar.MessageId() == pulsar.MessageId.wrap(
        pulsar.MessageId.earliest))  # fmt: skip
    for less, more in (((0, 1, 1, 0), (1, 1, 1, 0)), ((1, 1, 1, 5), (0, 1, 1, 6))):
        one, other = pulsar.MessageId(*less), pulsar.MessageId(*more)
        world.say(one < other, one <= other, one > other, one >= other, one == other)
    for name in ("Result", "CompressionType", "ConsumerType", "InitialPosition", "LoggerLevel",
                 "PartitionsRoutingMode", "BatchingType", "KeySharedMode", "ProducerAccessMode",
                 "RegexSubscriptionMode", "ConsumerCryptoFailureAction"):  # fmt: skip
        for member in getattr(pulsar, name).__members__.values():
            world.say(str(member), repr(member), member.name, member.value, int(member))
    failover = pulsar.AutoClusterFailover(
        pulsar.ServiceInfo("pulsar://a:1"), [pulsar.ServiceInfo("pulsar+ssl://b:1")]
    )
    world.say(repr(failover), issubclass(pulsar.Timeout, pulsar.PulsarException))
    info = world.client.get_service_info()
    world.say(info.use_tls, info.service_url == world.server.service_url)
