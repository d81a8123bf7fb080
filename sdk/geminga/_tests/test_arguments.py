"""Wrong arguments raise at the call, naming the argument; the broker's refusals have specific
errors, which name the topic.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

T = "persistent://public/default/t"
HUGE = 1 << 63

CONNECT: list[tuple[str, object]] = [
    ("service_url", None),
    ("service_url", b"pulsar://localhost"),
    ("service_url", ""),
    ("service_url", "localhost:6650"),
    ("service_url", "kafka://localhost"),
    ("service_url", "pulsar://"),
    ("service_url", "pulsar://host:port"),
    ("service_url", "pulsar://host:70000"),
    ("operation_timeout_s", 0),
    ("operation_timeout_s", "30"),
    ("operation_timeout_s", float("nan")),
    ("connection_timeout_s", -1),
    ("connections_per_broker", 0),
    ("connections_per_broker", 1.5),
    ("keep_alive_interval_s", 0),
    ("memory_limit_bytes", 0),
    ("memory_limit_bytes", "64M"),
    ("listener_name", 5),
    ("listener_name", ""),
    ("lookup_redirects_max", -1),
    ("lookup_redirects_max", True),
    ("trusted_broker_hosts", "one"),
    ("trusted_broker_hosts", [5]),
    ("initial_backoff_s", 0),
    ("max_backoff_s", None),
    ("stats_interval_s", -1),
    ("authentication", "token:abc"),
    ("failover", "pulsar://other"),
    ("service_url2", "pulsar://other"),
]
CREATE: list[tuple[str, object]] = [
    ("topic", None),
    ("topic", b"t"),
    ("topic", ""),
    ("topic", " "),
    ("topic", "kafka://public/default/t"),
    ("topic", "persistent://public/t"),
    ("topic", "a/b"),
    ("producer_name", ""),
    ("producer_name", 5),
    ("initial_sequence_id", -2),
    ("initial_sequence_id", 0.5),
    ("send_timeout_s", -1),
    ("send_timeout_s", None),
    ("max_pending_messages", 0),
    ("max_pending_messages", 2.5),
    ("compression_type", "LZ4"),
    ("compression_type", 1),
    ("batching_enabled", 1),
    ("batching_enabled", "yes"),
    ("batching_max_messages", 0),
    ("batching_max_messages", True),
    ("batching_max_bytes", -1),
    ("batching_max_publish_delay_s", "1ms"),
    ("batching_type", "key-based"),
    ("chunking_enabled", None),
    ("chunking_enabled", True),
    ("chunk_max_message_size_bytes", 0),
    ("routing_mode", "single"),
    ("round_robin_partitions_max", 0),
    ("message_router", 5),
    ("hashing_scheme", None),
    ("lazy_start_partitioned_producers", 0),
    ("auto_update_partitions", "no"),
    ("auto_update_partitions_interval_s", 0),
    ("access_mode", 1),
    ("initial_subscription_name", b"s"),
    ("properties", {"a": 1}),
    ("properties", [("a", "b")]),
    ("interceptors", print),
    *(("encryption_keys", value) for value in (["k"], "k", [""], [1], 5)),
    ("crypto_key_reader", "public.pem"),
    ("crypto_failure_action", "SEND"),
    ("max_pending_mesages", 5),
]
SEND: list[tuple[str, object]] = [
    ("data", None),
    ("data", "text"),
    ("data", 5),
    ("data", [b"x"]),
    ("sequence_id", -1),
    ("sequence_id", "5"),
    ("sequence_id", 1.0),
    ("sequence_id", True),
    ("sequence_id", HUGE),
    ("properties", {"a": 1}),
    ("properties", {1: "a"}),
    ("properties", "ab"),
    ("properties", {"a": "\ud800"}),
    ("partition_key", bytearray(b"k")),
    ("partition_key", 5),
    ("partition_key", "\ud800"),
    ("ordering_key", 5),
    ("event_time_ms", -5),
    ("event_time_ms", 1.5),
    ("event_time_ms", HUGE),
    ("event_time_ms", datetime.datetime(2020, 1, 1)),
    ("deliver_at_ms", 1.5),
    ("deliver_at_ms", True),
    ("deliver_after", 5),
    ("deliver_after", datetime.timedelta(-1)),
    ("replication_clusters", "cluster"),
    ("replication_clusters", [5]),
    ("replication_clusters", [""]),
    ("disable_replication", 1),
    ("colour", "red"),
]


@pytest.mark.parametrize(("name", "value"), CONNECT, ids=str)
def test_connect(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"service_url": "pulsar://localhost", name: value}
    with pytest.raises(geminga.InvalidArgumentError, match=name):
        geminga.connect(**arguments)


async def test_create_producer(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        for name, value in CREATE:
            arguments: dict[str, Any] = {"topic": "t", name: value}
            with pytest.raises(geminga.InvalidArgumentError, match=name):
                await client.create_producer(**arguments)
        bad: list[Any] = [None, 5, "a/b"]
        for topic in bad:
            with pytest.raises(geminga.InvalidArgumentError, match="topic"):
                await client.list_partitions(topic)
        assert broker.seen == []


async def test_sends(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        for name, value in SEND:
            arguments: dict[str, Any] = {"data": b"x", name: value}
            for call in (producer.send, producer.submit):
                with pytest.raises(geminga.InvalidArgumentError, match=name):
                    await call(**arguments)
            with pytest.raises(geminga.InvalidArgumentError, match=name):
                producer.send_nowait(**arguments)
        with pytest.raises(geminga.InvalidArgumentError, match="deliver_at_ms and deliver_after"):
            await producer.send(b"", deliver_at_ms=5, deliver_after=datetime.timedelta(1))
        with pytest.raises(geminga.InvalidArgumentError, match="replication_clusters and disable"):
            await producer.send(b"", replication_clusters=["a"], disable_replication=True)
        with pytest.raises(geminga.MessageTooBigError, match="limit") as caught:
            await producer.send(bytes(broker.max_message_size + 1))
        assert caught.value.topic == T
        assert producer.pending_messages == 0
        assert broker.topic("t").entries == []


LONG = "n" * (1 << 20)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("create_producer", "producer_name"),
        ("create_producer", "initial_subscription_name"),
        ("create_producer", "properties"),
        ("subscribe", "subscription_name"),
        ("subscribe", "consumer_name"),
        ("subscribe", "properties"),
        ("subscribe", "subscription_properties"),
        ("create_reader", "reader_name"),
        ("create_reader", "subscription_name"),
        ("create_reader", "subscription_role_prefix"),
    ],
)
async def test_what_no_command_takes_is_refused_at_once(
    call: str, name: str, autojump_clock: MockClock
) -> None:
    """And not what is just possible."""
    arguments: dict[str, Any] = {"topic": "t"}
    if call != "create_producer":
        other = {"subscribe": "subscription_name", "create_reader": "start_message_id"}[call]
        arguments[other] = "s" if call == "subscribe" else geminga.EARLIEST

    def named(text: str) -> dict[str, Any]:
        return {**arguments, name: {"": text} if name.endswith("properties") else text}

    async with fake_broker() as broker, broker.client() as client:
        with pytest.raises(geminga.InvalidArgumentError, match=f"{name} of 1048577 bytes"):
            await getattr(client, call)(**named(LONG[1:] + "é"))
        assert broker.seen == []
        longest = LONG[100:] if name == "subscription_role_prefix" else LONG  # a name follows it
        await getattr(client, call)(**named(longest))


MANY = {f"{number:06}": "" for number in range(60_000)}


async def test_what_no_command_takes_together(autojump_clock: MockClock) -> None:
    """Each alone is possible; and a pattern has a bound of its own."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("create_producer", {"producer_name": LONG, "properties": {"a": "b" * 99_999}}),
        ("create_producer", {"properties": MANY}),
        ("create_producer", {"producer_name": LONG, "initial_subscription_name": LONG}),
        ("subscribe", {"subscription_name": "s", "consumer_name": LONG, "properties": MANY}),
        ("subscribe", {"subscription_name": LONG, "subscription_properties": {"": LONG}}),
        ("create_reader", {"start_message_id": geminga.EARLIEST, "subscription_name": LONG}),
    ]
    calls[-1][1]["reader_name"] = LONG
    async with fake_broker() as broker, broker.client() as client:
        for call, arguments in calls:
            with pytest.raises(geminga.InvalidArgumentError, match="names and properties of"):
                await getattr(client, call)("t", **arguments)
        pattern = re.compile("persistent://public/default/" + "n" * (60 << 10))
        with pytest.raises(geminga.InvalidArgumentError, match="a pattern of 61468 bytes"):
            await client.subscribe(pattern, "s")
        assert broker.seen == []


REFUSED = [
    (ServerError.AuthenticationError, geminga.AuthenticationError),
    (ServerError.AuthorizationError, geminga.AuthorizationError),
    (ServerError.TopicTerminatedError, geminga.TopicTerminatedError),
    (ServerError.ProducerFenced, geminga.ProducerFencedError),
    (ServerError.ProducerBusy, geminga.ProducerBusyError),
    (ServerError.ProducerBlockedQuotaExceededError, geminga.QuotaExceededError),
    (ServerError.ProducerBlockedQuotaExceededException, geminga.QuotaExceededError),
    (ServerError.TopicNotFound, geminga.TopicNotFoundError),
    (ServerError.NotAllowedError, geminga.NotAllowedError),
    (ServerError.TooManyRequests, geminga.TooManyRequestsError),
    (ServerError.IncompatibleSchema, geminga.IncompatibleSchemaError),
    (ServerError.UnsupportedVersionError, geminga.UnsupportedVersionError),
]


@pytest.mark.parametrize("step", ["partitionMetadata", "lookupTopic", "producer"])
@pytest.mark.parametrize(("code", "kind"), REFUSED)
async def test_refusals_have_their_own_errors(
    step: str, code: ServerError, kind: type[geminga.GemingaError], autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client(operation_timeout_s=2) as client:
        broker.fail[step] = [(code, "no")] * 1000
        with pytest.raises(kind) as caught:
            await client.create_producer("t")
        assert type(caught.value) is kind
        assert caught.value.topic == T
        assert caught.value.code == ServerError.Name(code)
        assert T in str(caught.value)


async def test_a_connection_that_is_refused(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        broker.accepts = lambda data: False
        token = geminga.AuthenticationToken("t0ken")
        async with broker.client(authentication=token) as client:
            with pytest.raises(geminga.AuthenticationError) as caught:
                await client.create_producer("t")
            assert caught.value.topic == T


async def test_refused_after_the_connection_was_lost(autojump_clock: MockClock) -> None:
    """All pending and later messages fail with it."""
    for code, kind in REFUSED[:4:2] + REFUSED[3:4]:
        async with fake_broker() as broker, broker.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            broker.hold_receipts = True
            pending = await producer.submit(b"x")
            await trio.sleep(1)
            broker.fail["producer"] = [(code, "no")] * 1000
            broker.cut()
            with pytest.raises(kind) as caught:
                await pending.wait()
            assert caught.value.topic == T
            with pytest.raises(kind) as later:
                await producer.send(b"y")
            assert later.value.topic == T


@pytest.mark.parametrize("holds", [True, False])
async def test_quota_exceeded_after_the_connection_was_lost(
    holds: bool, autojump_clock: MockClock
) -> None:
    """With `producer_request_hold` pending messages wait, else fail; the producer continues."""
    codes = {
        True: ServerError.ProducerBlockedQuotaExceededError,
        False: ServerError.ProducerBlockedQuotaExceededException,
    }
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_s=0)
        broker.hold_receipts = True
        pending = await producer.submit(b"x")
        await trio.sleep(1)
        broker.fail["producer"] = [(codes[holds], "full")] * 3
        broker.cut()
        broker.hold_receipts = False
        if holds:
            assert (await pending.wait()).entry_id == -1  # it was stored before
        else:
            with pytest.raises(geminga.QuotaExceededError) as caught:
                await pending.wait()
            assert caught.value.topic == T
        await trio.sleep(5)
        await producer.send(b"y")


async def test_quota_exceeded_at_creation(autojump_clock: MockClock) -> None:
    """With `producer_exception` at once; a hold is waited for within the operation timeout."""
    async with fake_broker() as broker, broker.client(operation_timeout_s=30) as client:
        broker.fail["producer"] = [(ServerError.ProducerBlockedQuotaExceededException, "full")]
        began_s = trio.current_time()
        with pytest.raises(geminga.QuotaExceededError) as caught:
            await client.create_producer("t")
        assert (caught.value.topic, trio.current_time() - began_s) == (T, 0)
        broker.fail["producer"] = [(ServerError.ProducerBlockedQuotaExceededError, "full")] * 3
        await (await client.create_producer("t")).send(b"x")
        broker.fail["producer"] = [(ServerError.ProducerBlockedQuotaExceededError, "full")] * 999
        began_s = trio.current_time()
        with pytest.raises(geminga.QuotaExceededError):
            await client.create_producer("t")
        assert 29 <= trio.current_time() - began_s <= 30
