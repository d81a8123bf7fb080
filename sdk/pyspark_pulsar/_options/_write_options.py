"""Options of writing, in batches and streams (spec SP-06, SP-07, SP-10)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, cast

import geminga
from geminga import DefaultCryptoKeyReader
from geminga.options import ProducerKeywords
from pyspark_pulsar._options._client import ClientSettings, parse_client
from pyspark_pulsar._options._pair import PairChoice, parse_pair
from pyspark_pulsar._options._parser import OptionParser, OptionTable, key_paths
from pyspark_pulsar.errors import InvalidOption

PRODUCER = "pulsar.producer."
EPOCH_MAX = (1 << 31) - 1
"""The largest epoch: a sequence id has 31 bits for it, and 32 for the row."""
NAME_CHARS_MAX = 200
"""Maximum length of `producerName`: the broker stores the names of recent producers."""
PENDING_MAX = 1_000_000
"""Maximum of `maxPendingMessages`."""


class SchemaChoice(enum.Enum):
    """The schema of messages: by the columns (AUTO), or one of these."""

    AUTO = "auto"
    AVRO = "avro"
    JSON = "json"
    BYTES = "bytes"
    STRING = "string"
    KEYVALUE = "keyvalue"
    """Pairs, of a column `key` and a column `value`."""
    TOPIC = "topic"
    """The topic's own: columns are matched by name."""


class Routing(enum.Enum):
    """Routing of messages without key, with Java's names in capitals (MessageRoutingMode)."""

    ROUNDROBINPARTITION = "round-robin"
    SINGLEPARTITION = "single"


class Hashing(enum.Enum):
    """Hashing of keys to partitions, with Java's names in capitals (HashingScheme)."""

    JAVASTRINGHASH = "java"
    MURMUR3_32HASH = "murmur3"


@dataclass(frozen=True)
class ProducerSettings:
    """The producers of a task, one for each partition that it writes to; plain data."""

    send_timeout_s: float = 60.0
    max_pending_messages: int = 20_000
    compression_type: geminga.CompressionType = geminga.CompressionType.NONE
    batching_enabled: bool = True
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 * 1024
    batching_max_publish_delay_s: float = 0.001
    batching_type: geminga.BatchingType = geminga.BatchingType.DEFAULT
    chunking_enabled: bool = False
    chunk_max_message_size_bytes: int | None = None
    initial_subscription_name: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    encryption_keys: tuple[str, ...] = ()
    crypto_failure_action: geminga.ProducerCryptoFailureAction = (
        geminga.ProducerCryptoFailureAction.FAIL
    )
    public_key: str | None = field(default=None, repr=False)
    """Path or `data:` URL of the default encryption key."""
    public_keys: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The same by key name."""

    def keywords(self, producer_name: str | None = None) -> ProducerKeywords:
        """The keywords of `create_producer`."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        paths, default = dict(found.pop("public_keys")), found.pop("public_key")
        if self.encryption_keys:
            found["crypto_key_reader"] = DefaultCryptoKeyReader(
                default_public_key=default, public_keys=paths
            )
        found |= {"producer_name": producer_name, "properties": dict(self.properties)}
        return cast(ProducerKeywords, found)


@dataclass(frozen=True)
class WriteOptions:
    """All options of a write, checked; plain data that pickles. Times end in `_s`."""

    client: ClientSettings
    topic: str | None = None
    """The topic of all rows; None: by the column `__topic`."""
    schema_choice: SchemaChoice = SchemaChoice.AUTO
    pair: PairChoice = PairChoice()
    """How pairs are written, with KEYVALUE."""
    record_name: str = "Row"
    """Name of the Avro record that the columns become."""
    key_field: str | None = None
    """A value column that is also the message's key."""
    deduplication: bool = False
    """Whether producers have stable names and sequence ids, so that each row is written once."""
    producer_name: str | None = None
    """Prefix of producers' names."""
    epoch: int | None = None
    """Epoch of a batch write that is idempotent over several runs; with `producer_name`."""
    producer_busy_timeout_s: float = 60.0
    """How long a task waits for the producer of an earlier attempt to close."""
    routing: Routing = Routing.ROUNDROBINPARTITION
    hashing: Hashing = Hashing.JAVASTRINGHASH
    producer: ProducerSettings = ProducerSettings()
    checks_order: bool = True
    """With deduplication: whether rows that the broker drops are compared with its stored ones."""


_REFUSED = {
    "topicName": "give topic, or a column __topic",
    "producerName": "give producerName, without the prefix",
    "initialSequenceId": "give deduplication=true, which numbers messages",
    "accessMode": "several tasks write to a topic at once; with deduplication=true an attempt "
    "waits until the one before it is gone",
    "blockIfQueueFull": "a task always waits for room",
    "maxPendingMessagesAcrossPartitions": "maxPendingMessages counts for each partition",
    "batchingPartitionSwitchFrequencyByPublishDelay": "the partition changes with each full batch",
    "autoUpdatePartitions": "each task looks the partitions up",
    "autoUpdatePartitionsIntervalSeconds": "each task looks the partitions up",
    "lazyStartPartitionedProducers": "partitions are connected to by their first message",
    "multiSchema": "a frame has one schema",
    "cryptoKeyReader": "give publicKeyPath",
    "customMessageRouter": "give a column __partition",
    "messageCrypto": "encryption is always Pulsar's own",
}


def _micros(parser: OptionParser, name: str) -> object:
    found = parser.whole(name, most=1 << 40)
    return None if found is None else found / 1e6


def _properties(parser: OptionParser, name: str) -> object:
    found = parser.table(name)
    if found is None:
        return None
    if not all(isinstance(value, str) for value in found.values()):
        raise parser.fault(name, "must be a JSON object of strings")
    return tuple((key, str(value)) for key, value in found.items())


def _choice(kind: type[enum.Enum]) -> Callable[[OptionParser, str], object]:
    return partial(OptionParser.choice, kind=kind, default=None)


_count = partial(OptionParser.whole, least=1, most=PENDING_MAX)
_size = partial(OptionParser.size, most=1 << 30)
_flag = partial(OptionParser.flag, default=None)
_ROWS = (
    ("sendTimeoutMs", "send_timeout_s", OptionParser.seconds),
    ("maxPendingMessages", "max_pending_messages", _count),
    ("compressionType", "compression_type", _choice(geminga.CompressionType)),
    ("batchingEnabled", "batching_enabled", _flag),
    ("batchingMaxMessages", "batching_max_messages", _count),
    ("batchingMaxBytes", "batching_max_bytes", _size),
    ("batchingMaxPublishDelayMicros", "batching_max_publish_delay_s", _micros),
    ("batcherBuilder", "batching_type", _choice(geminga.BatchingType)),
    ("chunkingEnabled", "chunking_enabled", _flag),
    ("chunkMaxMessageSize", "chunk_max_message_size_bytes", _size),
    ("initialSubscriptionName", "initial_subscription_name", OptionParser.filled),
    ("properties", "properties", _properties),
    ("encryptionKeys", "encryption_keys", OptionParser.listed),
    ("cryptoFailureAction", "crypto_failure_action", _choice(geminga.ProducerCryptoFailureAction)),
)
_TABLE = OptionTable(
    PRODUCER, _ROWS, ("messageRoutingMode", "hashingScheme", "publicKeyPath"), _REFUSED
)


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of `df.write` or `df.writeStream`. Raises InvalidOption, naming the option."""
    parser = OptionParser(options)
    client = parse_client(parser)
    topic = parser.filled("topic")
    deduplication = parser.flag("deduplication", default=False)
    name = parser.filled("producerName")
    if name is not None and len(name) > NAME_CHARS_MAX:
        raise parser.fault("producerName", f"must have at most {NAME_CHARS_MAX} characters")
    epoch = None if streaming else _epoch(parser, deduplication, name)
    routing = parser.choice(
        PRODUCER + "messageRoutingMode", kind=Routing, default=Routing.ROUNDROBINPARTITION
    )
    hashing = parser.choice(
        PRODUCER + "hashingScheme", kind=Hashing, default=Hashing.JAVASTRINGHASH
    )
    producer = _producer(parser)
    if deduplication and producer.batching_type is geminga.BatchingType.KEY_BASED:
        raise parser.fault(
            PRODUCER + "batcherBuilder",
            "can't be KEY_BASED with deduplication=true: its batches aren't in order",
        )
    busy_s = parser.seconds("producerBusyTimeoutMs")
    choice = parser.choice("schemaType", "schemaMode", kind=SchemaChoice, default=SchemaChoice.AUTO)
    found = WriteOptions(
        client,
        None if topic is None else topic.strip(),
        choice,
        parse_pair(parser, is_wanted=choice is SchemaChoice.KEYVALUE),
        _record_name(parser),
        parser.filled("keyField"),
        deduplication,
        name,
        epoch,
        WriteOptions.producer_busy_timeout_s if busy_s is None else busy_s,
        routing,
        hashing,
        producer,
        parser.flag("deduplicationCheck", default=True),
    )
    if streaming:
        parser.text("checkpointLocation")  # Spark's own, which it hands on.
    parser.not_here("a stream counts its epochs itself; leave it out", "deduplicationEpoch")
    parser.not_here("give topic", "path")
    parser.close()
    return found


def _epoch(parser: OptionParser, deduplication: bool, name: str | None) -> int | None:
    epoch = parser.whole("deduplicationEpoch", most=EPOCH_MAX)
    if epoch is None:
        return None
    option = parser.name_of("deduplicationEpoch")
    if not deduplication:
        raise InvalidOption(option, "needs deduplication=true")
    if name is None:
        raise InvalidOption(
            option, "needs producerName, by which the broker knows repeated messages"
        )
    return epoch


def _record_name(parser: OptionParser) -> str:
    name = (parser.filled("recordName") or WriteOptions.record_name).strip()
    if not all(part.isidentifier() and part.isascii() for part in name.split(".")):
        raise parser.fault("recordName", f"must be a name of an Avro record, not {name!r}")
    return name


def _producer(parser: OptionParser) -> ProducerSettings:
    values = _TABLE.read(parser)
    values |= _keys(parser, values.get("encryption_keys", ()))
    if values.get("chunking_enabled") and "batching_enabled" not in values:
        # Chunked messages can't be batched: asking for chunks turns batches off.
        values["batching_enabled"] = False
    _TABLE.refuse_rest(parser)
    settings = ProducerSettings(**values)
    _TABLE.check(lambda: geminga.ProducerOptions(**settings.keywords()))
    return settings


def _keys(parser: OptionParser, names: object) -> dict[str, Any]:
    option = PRODUCER + "publicKeyPath"
    text = parser.filled(option, "publicKeyPath")
    if text is None:
        if names:
            raise InvalidOption(option, "must be given with encryptionKeys")
        return {}
    option = parser.name_of(option)
    if not names:
        raise InvalidOption(option, "needs encryptionKeys")
    paths = key_paths(option, text)
    return {"public_key" if isinstance(paths, str) else "public_keys": paths}
