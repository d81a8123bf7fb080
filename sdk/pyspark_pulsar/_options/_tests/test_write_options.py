"""Options of writing."""

from __future__ import annotations

import pickle

import pytest

import geminga
from pyspark_pulsar._options._write_options import (
    Hashing,
    ProducerSettings,
    Routing,
    SchemaChoice,
    WriteOptions,
    parse_write,
)
from pyspark_pulsar.errors import InvalidOption

URL = {"service.url": "pulsar://localhost:6650"}


def parsed(*, streaming: bool = False, **given: str) -> WriteOptions:
    return parse_write({**URL, **given}, streaming=streaming)


def producer(**given: str) -> ProducerSettings:
    return parsed(**{f"pulsar.producer.{name}": value for name, value in given.items()}).producer


def test_only_the_url() -> None:
    found = parsed()
    assert found == WriteOptions(found.client)
    assert pickle.loads(pickle.dumps(found)) == found
    geminga.ProducerOptions(**found.producer.keywords())


def test_all_options_of_the_connector() -> None:
    found = parsed(
        TOPIC=" t ",
        schematype="JSON",
        recordName="a.B",
        keyField="k",
        deduplication="true",
        producerName="p",
        deduplicationEpoch="7",
        producerBusyTimeoutMs="5s",
    )
    assert found.topic == "t"
    assert found.schema_choice is SchemaChoice.JSON
    assert (found.record_name, found.key_field) == ("a.B", "k")
    assert (found.deduplication, found.producer_name, found.epoch) == (True, "p", 7)
    assert found.producer_busy_timeout_s == 5


def test_all_options_of_producers() -> None:
    found = parsed(
        **{
            "pulsar.producer.messageRoutingMode": "SinglePartition",
            "pulsar.producer.hashingScheme": "Murmur3_32Hash",
            "pulsar.producer.sendTimeoutMs": "0",
            "pulsar.producer.maxPendingMessages": "10",
            "pulsar.producer.compressionType": "zstd",
            "pulsar.producer.batchingMaxMessages": "20",
            "pulsar.producer.batchingMaxBytes": "64k",
            "pulsar.producer.batchingMaxPublishDelayMicros": "1500",
            "pulsar.producer.batcherBuilder": "KEY_BASED",
            "pulsar.producer.initialSubscriptionName": "s",
            "pulsar.producer.properties": '{"a": "b"}',
            "pulsar.producer.encryptionKeys": "k1, k2",
            "pulsar.producer.cryptoFailureAction": "send",
            "publicKeyPath": '{"k1": "/a.pem", "k2": "/b.pem"}',
        }
    )
    assert (found.routing, found.hashing) == (Routing.SINGLEPARTITION, Hashing.MURMUR3_32HASH)
    settings = found.producer
    assert settings.send_timeout_s == 0
    assert settings.max_pending_messages == 10
    assert settings.compression_type is geminga.CompressionType.ZSTD
    assert (settings.batching_max_messages, settings.batching_max_bytes) == (20, 65536)
    assert settings.batching_max_publish_delay_s == 0.0015
    assert settings.batching_type is geminga.BatchingType.KEY_BASED
    assert settings.initial_subscription_name == "s"
    assert settings.properties == (("a", "b"),)
    assert settings.encryption_keys == ("k1", "k2")
    assert settings.crypto_failure_action is geminga.ProducerCryptoFailureAction.SEND
    assert settings.public_keys == (("k1", "/a.pem"), ("k2", "/b.pem"))
    assert "pem" not in repr(found)
    geminga.ProducerOptions(**settings.keywords())


def test_chunks_are_not_batched() -> None:
    found = producer(chunkingEnabled="true", chunkMaxMessageSize="1m")
    assert (found.chunking_enabled, found.batching_enabled) == (True, False)
    assert found.chunk_max_message_size_bytes == 1 << 20


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topik": "t"}, "option topik: is unknown; did you mean topic"),
        ({"schemaType": "xml"}, "option schemaType: must be one of AUTO"),
        ({"deduplication": "yes"}, "option deduplication: must be true or false"),
        ({"deduplicationEpoch": "1"}, "deduplicationEpoch: needs deduplication=true"),
        (
            {"deduplicationEpoch": "1", "deduplication": "true"},
            "deduplicationEpoch: needs producerName",
        ),
        ({"deduplicationEpoch": str(1 << 31)}, "deduplicationEpoch: must be at most"),
        ({"recordName": "a b"}, "recordName: must be a name"),
        ({"producerName": "x" * 201}, "producerName: must have at most 200"),
        ({"startingOffsets": "latest"}, "option startingOffsets: is unknown"),
        ({"path": "/tmp/x"}, "option path: give topic"),
    ],
)
def test_invalid_options_are_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        parsed(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"accessMode": "Exclusive"}, "pulsar.producer.accessMode: isn't supported"),
        ({"producerName": "p"}, "pulsar.producer.producerName: .*give producerName"),
        ({"compresionType": "LZ4"}, "did you mean pulsar.producer.compressionType"),
        ({"compressionType": "GZIP"}, "compressionType: must be one of NONE"),
        ({"batchingMaxMessages": "0"}, "batchingMaxMessages: must be at least 1"),
        ({"properties": '{"a": 1}'}, "properties: must be a JSON object of strings"),
        ({"encryptionKeys": "k"}, "publicKeyPath: must be given with encryptionKeys"),
        ({"publicKeyPath": "/k.pem"}, "publicKeyPath: needs encryptionKeys"),
        (
            {"chunkingEnabled": "true", "batchingEnabled": "true"},
            "chunkingEnabled needs batchingEnabled",
        ),
    ],
)
def test_invalid_producer_options_are_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        producer(**given)


def test_a_stream_counts_epochs_itself() -> None:
    with pytest.raises(InvalidOption, match="deduplicationEpoch: a stream counts"):
        parsed(streaming=True, deduplicationEpoch="1", deduplication="true", producerName="p")


def test_batches_by_key_are_not_in_order() -> None:
    with pytest.raises(InvalidOption, match="batcherBuilder: can't be KEY_BASED"):
        parsed(deduplication="true", **{"pulsar.producer.batcherBuilder": "KEY_BASED"})


def test_sparks_own_options_are_accepted_in_a_stream() -> None:
    assert parsed(streaming=True, checkpointlocation="/tmp/c") == parsed(streaming=True)
    with pytest.raises(InvalidOption, match="checkpointLocation: is unknown"):
        parsed(checkpointLocation="/tmp/c")
