"""End-to-end encryption with a broker in memory: bytes on the wire, and missing keys."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import (
    EARLIEST,
    BatchingType,
    CompressionType,
    ConsumerType,
    DeadLetterPolicy,
    DefaultCryptoKeyReader,
    InitialPosition,
)
from geminga import ConsumerCryptoFailureAction as OnRead
from geminga import ProducerCryptoFailureAction as OnSend
from geminga._entries.crypto import Opener
from geminga._tests.crypto_keys import PRIVATE, READER, CountingReader
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga.errors import CryptoError
from geminga_protocol.payload import parse_metadata
from geminga_protocol.pb.pulsar_api_pb2 import CommandAck, MessageMetadata

SECRETS = [f"secret {n}".encode() * 9 for n in range(3)]


def on_the_wire(broker: FakeBroker, topic: str = "t") -> list[tuple[MessageMetadata, bytes]]:
    return [(parse_metadata(memoryview(each)), bytes(each)) for each in broker.topic(topic).entries]


@pytest.mark.parametrize("keys", [["rsa"], ["ec"], ["ec", "rsa"]])
@pytest.mark.parametrize(
    "options",
    [
        {"batching_enabled": False},
        {},
        {"batching_type": BatchingType.KEY_BASED},
        {"compression_type": CompressionType.ZLIB},
        {"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size_bytes": 20},
        {"batching_enabled": False, "chunking_enabled": True},
    ],
)
async def test_there_and_back(
    autojump_clock: MockClock, keys: list[str], options: geminga.options.ProducerKeywords
) -> None:
    reader = DefaultCryptoKeyReader(private_keys={keys[-1]: PRIVATE[keys[-1]]})
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", crypto_key_reader=reader)
        async with await client.create_producer(
            "t", encryption_keys=keys, crypto_key_reader=READER, **options
        ) as producer:
            for secret in SECRETS:
                await producer.submit(secret, partition_key="k", properties={"a": "b"})
        ivs = set()
        for metadata, entry in on_the_wire(broker):
            assert [each.key for each in metadata.encryption_keys] == keys
            assert not metadata.HasField("encryption_algo")
            assert b"secret" not in entry
            ivs.add(metadata.encryption_param)
        assert len(ivs) == len(broker.topic("t").entries)
        assert {len(iv) for iv in ivs} == {12}
        for secret in SECRETS:
            message = await consumer.receive(5)
            assert message.data == secret
            assert message.properties == {"a": "b"}
            context = message.encryption_context
            assert context is not None
            assert not context.is_encrypted
            assert set(context.keys) == set(keys)


async def test_an_encrypted_chunk_fits_in_the_brokers_limit(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 2000
        consumer = await client.subscribe("t", "s", crypto_key_reader=READER)
        async with await client.create_producer(
            "t",
            encryption_keys=["rsa", "ec"],
            crypto_key_reader=READER,
            batching_enabled=False,
            chunking_enabled=True,
        ) as producer:
            await producer.send(bytes(9000))
        parts = on_the_wire(broker)
        assert len(parts) > 5
        for metadata, _ in parts:
            assert metadata.total_chunk_msg_size == metadata.uncompressed_size == 9000
            assert len(metadata.encryption_keys) == 2
        assert (await consumer.receive(5)).data == bytes(9000)


async def test_plain_messages_are_read_beside_encrypted_ones(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", crypto_key_reader=READER)
        async with await client.create_producer("t") as producer:
            await producer.send(b"plain")
        message = await consumer.receive(5)
        assert (message.data, message.encryption_context) == (b"plain", None)


async def test_reader_and_table_view(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with await client.create_producer(
            "t", encryption_keys=["ec"], crypto_key_reader=READER
        ) as producer:
            await producer.send(b"value", partition_key="k")
        async with await client.create_reader("t", EARLIEST, crypto_key_reader=READER) as reader:
            assert (await reader.read_next(5)).data == b"value"
        async with await client.create_table_view("t", crypto_key_reader=READER) as view:
            assert view.get("k") == b"value"


async def test_many_partitions_and_topics(autojump_clock: MockClock) -> None:
    """Each partition has its own data key, also one started by its first message."""
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/many"] = 3
        consumer = await client.subscribe(["many", "one"], "s", crypto_key_reader=READER)
        for topic in ("many", "one"):
            async with await client.create_producer(
                topic,
                encryption_keys=["ec"],
                crypto_key_reader=READER,
                lazy_start_partitioned_producers=True,
                batching_enabled=False,
            ) as producer:
                for n in range(12):
                    await producer.send(b"%d" % n)
        got = [await consumer.receive(5) for _ in range(24)]
        assert sorted(int(each.data) for each in got) == sorted([*range(12)] * 2)
        values = {each.encryption_context.keys["ec"].key for each in got if each.encryption_context}
        assert len(values) == 4


async def test_a_producer_without_its_keys(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL: it can't be created. SEND: it sends unencrypted."""
    reader = CountingReader()
    reader.fails = True
    async with fake_broker() as broker, broker.client() as client:
        with pytest.raises(CryptoError, match="LookupError for the public key 'ec'"):
            await client.create_producer("t", encryption_keys=["ec"], crypto_key_reader=reader)
        assert "producer" not in broker.seen
        async with await client.create_producer(
            "t",
            encryption_keys=["ec"],
            crypto_key_reader=reader,
            crypto_failure_action=OnSend.SEND,
        ) as producer:
            await producer.send(b"secret")
        ((metadata, entry),) = on_the_wire(broker)
        assert b"secret" in entry
        assert not metadata.encryption_keys
        assert len(reader.asked) == 2
    assert "hush" not in caplog.text
    assert "messages fail" in caplog.text
    assert "messages are sent in plain" in caplog.text


@pytest.mark.parametrize("kind", [ConsumerType.EXCLUSIVE, ConsumerType.SHARED])
@pytest.mark.parametrize("batched", [False, True])
async def test_a_consumer_without_key_fails(
    autojump_clock: MockClock, kind: ConsumerType, batched: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They stay unacknowledged, and are redelivered to consumers with the key; readable messages
    arrive at once, even after more unreadable ones than the queue's size.
    """
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t",
            "s",
            consumer_type=kind,
            receiver_queue_size=2,
            negative_ack_redelivery_delay_s=3,
            crypto_key_reader=DefaultCryptoKeyReader(default_private_key=PRIVATE["other"]),
        )
        async with await client.create_producer(
            "t", encryption_keys=["ec"], crypto_key_reader=READER, batching_enabled=batched
        ) as producer:
            for secret in SECRETS * 2:
                await producer.submit(secret)
            await producer.flush()
        async with await client.create_producer("t") as producer:
            await producer.send(b"plain")
        message = await consumer.receive(1)
        assert message.data == b"plain"
        await consumer.acknowledge(message)
        assert consumer.statistics().total_receive_failed == (1 if batched else 6)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(10)
        again = consumer.statistics().total_receive_failed > (1 if batched else 6)
        assert again == (kind is ConsumerType.SHARED)
        await consumer.aclose()
        async with await client.subscribe(
            "t", "s", consumer_type=kind, crypto_key_reader=READER
        ) as able:
            assert [(await able.receive(5)).data for _ in range(6)] == SECRETS * 2
    assert "private key 'ec': the data key is not for this private key" in caplog.text


@pytest.mark.parametrize("batched", [False, True])
async def test_discard(autojump_clock: MockClock, batched: bool) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t", "s", crypto_failure_action=OnRead.DISCARD, receiver_queue_size=2
        )
        async with await client.create_producer(
            "t", encryption_keys=["ec"], crypto_key_reader=READER, batching_enabled=batched
        ) as producer:
            for secret in SECRETS:
                await producer.submit(secret)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)
        entries = len(broker.topic("t").entries)
        subscription = broker.topic("t").subscriptions["s"]
        assert subscription.acked == set(range(entries))
        told = {ack.ack.validation_error for ack in broker.acks}
        assert told == {CommandAck.DecryptionError}


async def test_consume_hands_out_what_the_broker_has(autojump_clock: MockClock) -> None:
    """With all data for its decryption; a batch is one message, acknowledged as a whole."""
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t", "s", crypto_failure_action=OnRead.CONSUME, receiver_queue_size=2
        )
        async with await client.create_producer(
            "t",
            encryption_keys=["ec"],
            crypto_key_reader=CountingReader(),
            compression_type=CompressionType.ZLIB,
        ) as producer:
            for secret in SECRETS * 3:
                await producer.submit(secret)
        message = await consumer.receive(5)
        context = message.encryption_context
        assert context is not None
        assert context.is_encrypted
        assert (context.batch_size, context.compression_type) == (9, 2)
        assert context.keys["ec"].metadata == {"version": "1"}
        ((metadata, _),) = on_the_wire(broker)
        opened = Opener(READER).open(metadata, message.data, 0.0)
        assert len(opened) < context.uncompressed_size_bytes
        assert message.message_id.batch_index == -1
        await consumer.acknowledge(message)
        await trio.sleep(1)
        assert broker.topic("t").subscriptions["s"].acked == {0}


async def test_letters(autojump_clock: MockClock) -> None:
    """Encrypted again if the policy has keys; undecryptable messages don't become letters."""
    async with fake_broker() as broker, broker.client() as client:
        policy = DeadLetterPolicy(encryption_keys=["rsa"])
        consumer = await client.subscribe(
            "t", "s", retry_enabled=True, dead_letter_policy=policy, crypto_key_reader=READER
        )
        blind = await client.subscribe(
            "t", "blind", retry_enabled=True, crypto_failure_action=OnRead.CONSUME
        )
        async with await client.create_producer(
            "t", encryption_keys=["ec"], crypto_key_reader=READER
        ) as producer:
            await producer.send(SECRETS[0])
        await consumer.reconsume_later(await consumer.receive(5), 1)
        assert (await consumer.receive(5)).data == SECRETS[0]
        ((metadata, entry),) = on_the_wire(broker, "t-s-RETRY")
        assert [each.key for each in metadata.encryption_keys] == ["rsa"]
        assert b"secret" not in entry
        with pytest.raises(CryptoError, match="still encrypted"):
            await blind.reconsume_later(await blind.receive(5), 1)


async def test_a_subscription_goes_on_with_the_key_it_began_with(
    autojump_clock: MockClock,
) -> None:
    """After a lost connection all messages come again, decrypted with the same key."""
    reader = CountingReader()
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t", "s", crypto_key_reader=reader, initial_position=InitialPosition.EARLIEST
        )
        producer = await client.create_producer(
            "t", encryption_keys=["ec"], crypto_key_reader=reader
        )
        await producer.send(SECRETS[0])
        assert (await consumer.receive(5)).data == SECRETS[0]
        broker.cut()
        await producer.send(SECRETS[1])
        assert [(await consumer.receive(5)).data for _ in range(2)] == SECRETS[:2]
        assert [kind for kind, _, _ in reader.asked] == ["public", "private"]


async def test_whole_entries(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with await client.create_producer(
            "t", encryption_keys=["ec"], crypto_key_reader=READER
        ) as producer:
            for secret in SECRETS:
                await producer.submit(secret, partition_key="k")
        async with await client.create_reader("t", EARLIEST, crypto_key_reader=READER) as reader:
            (entry,) = await reader.read_batches(5)
            assert (entry.payloads(), entry.keys()) == (SECRETS, ["k"] * 3)
            assert not entry.is_encrypted
            assert entry.encryption_context is not None
        async with await client.create_reader(
            "t", EARLIEST, crypto_failure_action=OnRead.CONSUME
        ) as reader:
            (entry,) = await reader.read_batches(5)
            assert entry.is_encrypted
            assert (entry.message_count, list(entry.indexes), entry.keys()) == (3, [-1], [None])
            (payload,) = entry.payloads()
            ((metadata, _),) = on_the_wire(broker)
            assert Opener(READER).open(metadata, payload, 0.0).count(SECRETS[0]) == 1
            assert entry.encryption_context is not None
            assert entry.encryption_context.batch_size == 3
        async with await client.create_reader("t", EARLIEST) as reader:
            with pytest.raises(geminga.OperationTimeoutError):
                await reader.read_batches(1)
            assert reader.statistics().total_receive_failed == 1
