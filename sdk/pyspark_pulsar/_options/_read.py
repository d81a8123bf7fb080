"""Options of reading, in batches and streams (spec SP-01 to SP-05, SP-07, SP-10)."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from geminga import ConsumerCryptoFailureAction, CryptoKeyReader, DefaultCryptoKeyReader
from pyspark_pulsar._options._bounds import Bound, parse_end, parse_start
from pyspark_pulsar._options._client import ClientSettings, parse_client
from pyspark_pulsar._options._parser import OptionParser, key_paths
from pyspark_pulsar.errors import InvalidOption

READER = "pulsar.reader."
PARTITIONS_MAX = 100_000
"""Maximum of `minPartitions`."""
ROWS_MAX = 1_000_000
"""Maximum rows of one Arrow batch."""
QUEUE_MAX = 1_000_000
"""Maximum messages that a reader prefetches."""
BATCH_BYTES_MAX = 1 << 30
"""Maximum bytes of one Arrow batch: offsets of strings have 32 bits."""


class ParseMode(enum.Enum):
    """Treatment of malformed messages, with Spark's names."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics to read: names as given, or a pattern for full names."""

    option: str
    names: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """All options of a read, checked; plain data that pickles. Times end in `_s`."""

    client: ClientSettings
    topics: TopicSelection
    start: Bound
    end: Bound | None
    """None in a stream."""
    fail_on_data_loss: bool = True
    allow_different_topic_schemas: bool = False
    schema_mode: str = "auto"
    """`auto`: by the topic's schema; `raw`: values are bytes."""
    parse_mode: ParseMode = ParseMode.FAILFAST
    corrupt_record_column: str | None = None
    """A string or binary column for malformed messages, in PERMISSIVE."""
    include_properties: bool = True
    """Whether the default schema has `__messageProperties`."""
    push_down: bool = False
    """Whether Spark's filters narrow the read. Spark plans all uses of a DataFrame with the
    filters of the first, so each `load()` must be used once.
    """
    publish_time_slack_s: float | None = None
    """By how much publish times may be out of order (producers' clocks differ). With it, filters on
    `__publishTime` narrow the read; with None they don't.
    """
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    poll_timeout_s: float = 120.0
    """A read fails if an existing message doesn't arrive in this time."""
    batch_rows_max: int = 10_000
    batch_bytes_max: int = 16 * 1024 * 1024
    messages_per_second: float | None = None
    """Of each task, on average; None: no limit."""
    bytes_per_second: float | None = None
    """Of payloads, of each task, on average; None: no limit."""
    read_compacted: bool = False
    receiver_queue_size: int = 10_000
    """Maximum prefetched messages; at most `batch_bytes_max` of payload."""
    reader_name: str | None = None
    subscription_role_prefix: str = ""
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL
    private_key: str | None = field(default=None, repr=False)
    """Path of the decryption key for all key names not in `private_keys`."""
    private_keys: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The same by key name."""
    anchor: bool = True
    """Whether a stream has a subscription, so that messages aren't trimmed before they are read."""
    subscription_name: str | None = None
    subscription_prefix: str = "spark-geminga"
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_messages_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    discovery_interval_s: float = 60.0

    def key_reader(self) -> CryptoKeyReader | None:
        """The reader of private keys; None without any."""
        if self.private_key is None and not self.private_keys:
            return None
        return DefaultCryptoKeyReader(
            default_private_key=self.private_key, private_keys=dict(self.private_keys)
        )


_KNOWN = (
    "receiverQueueSize", "readerName", "subscriptionRolePrefix", "readCompacted",
    "cryptoFailureAction", "privateKeyPath",
)  # fmt: skip
_STREAM_ONLY = "is for streams; use spark.readStream, or leave it out"
_BATCH_ONLY = "is for batch reads; a stream goes on until it is stopped"
_REFUSED = {
    "topicName": "give topic, topics or topicsPattern",
    "topicNames": "give topic, topics or topicsPattern",
    "startMessageId": "give startingOffsets",
    "startMessageFromRollbackDurationInSec": "give startingTimestamp",
    "resetIncludeHead": "ids in startingOffsets are always included",
    "subscriptionName": "give subscriptionName (of a stream), without the prefix",
    "poolMessages": "memory is not pooled",
}
"""Options of Java's reader that aren't supported, with advice."""


_BATCH_OPTIONS = (
    "endingOffsets",
    "endingTimestamp",
    "endingTime",
    "endingOffsetsByTimestamp",
    "maxRecordsPerPartition",
    "pushdown",
    "publishTimeSlackMs",
)
_STREAM_OPTIONS = (
    "anchor",
    "subscriptionName",
    "predefinedSubscription",
    "subscriptionPrefix",
    "groupIdPrefix",
    "maxMessagesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "discoveryIntervalMs",
)


def parse_read(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of `spark.read` or `spark.readStream`, or of either (None), for the schema.
    Raises InvalidOption, naming the option.
    """
    parser = OptionParser(options)
    client = parse_client(parser)
    topics = _topics(parser)
    start = parse_start(parser, streaming=streaming is not False)
    end = None if streaming else parse_end(parser)
    found = ReadOptions(client, topics, start, end)
    found = replace(found, **_shape(parser), **_amounts(parser), **_reader(parser))
    if not streaming:
        found = replace(found, **_batch(parser))
    if streaming is not False:
        found = replace(found, **_stream(parser))
    parser.not_here(_STREAM_ONLY, *_STREAM_OPTIONS)
    parser.not_here(_BATCH_ONLY, *_BATCH_OPTIONS)
    parser.close()
    return found


def _topics(parser: OptionParser) -> TopicSelection:
    one = parser.filled("topic")
    many = parser.listed("topics", "subscribe")
    pattern = parser.filled("topicsPattern", "subscribePattern")
    names = [parser.name_of(name) for name in ("topic", "topics", "topicsPattern")]
    told = [
        name
        for name, value in zip(names, (one, many, pattern), strict=True)
        if value is not None and value != ()
    ]
    if not told:
        raise InvalidOption("topic", "must be given, or topics, or topicsPattern")
    if len(told) > 1:
        raise InvalidOption(told[1], f"can't be given together with {told[0]}")
    if pattern is None:
        return TopicSelection(told[0], many if one is None else (one.strip(),))
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidOption(told[0], f"is not a regular expression: {error}") from None
    return TopicSelection(told[0], pattern=pattern)


def _shape(parser: OptionParser) -> dict[str, Any]:
    mode = parser.choice("mode", kind=ParseMode, default=ParseMode.FAILFAST)
    column = parser.filled("columnNameOfCorruptRecord")
    if column is not None and mode is not ParseMode.PERMISSIVE:
        raise parser.fault("columnNameOfCorruptRecord", "needs mode=PERMISSIVE")
    schema_mode = (parser.filled("schemaMode") or "auto").strip().lower()
    if schema_mode not in ("auto", "raw"):
        raise parser.fault("schemaMode", f"must be auto or raw, not {schema_mode!r}")
    return {
        "fail_on_data_loss": parser.flag("failOnDataLoss", default=True),
        "allow_different_topic_schemas": parser.flag("allowDifferentTopicSchemas", default=False),
        "schema_mode": schema_mode,
        "parse_mode": mode,
        "corrupt_record_column": column,
        "include_properties": parser.flag("includeProperties", "includeHeaders", default=True),
    }


def _amounts(parser: OptionParser) -> dict[str, Any]:
    optional = {
        "min_partitions": parser.whole("minPartitions", least=1, most=PARTITIONS_MAX),
        "messages_per_second": parser.number("maxMessagesPerSecond"),
        "bytes_per_second": parser.number("maxBytesPerSecond"),
        "poll_timeout_s": parser.seconds("pollTimeoutMs", least_ms=1),
        "batch_rows_max": parser.whole("maxRowsPerBatch", least=1, most=ROWS_MAX),
        "batch_bytes_max": parser.size("maxBytesPerBatch", least=1024, most=BATCH_BYTES_MAX),
    }
    return _told(optional)


def _reader(parser: OptionParser) -> dict[str, Any]:
    optional = {
        "receiver_queue_size": parser.whole(READER + "receiverQueueSize", least=1, most=QUEUE_MAX),
        "reader_name": parser.filled(READER + "readerName"),
        "subscription_role_prefix": parser.filled(READER + "subscriptionRolePrefix"),
    }
    found = {
        **_told(optional),
        "read_compacted": parser.flag("readCompacted", READER + "readCompacted", default=False),
        "crypto_failure_action": parser.choice(
            READER + "cryptoFailureAction",
            kind=ConsumerCryptoFailureAction,
            default=ConsumerCryptoFailureAction.FAIL,
        ),
        **_keys(parser),
    }
    parser.refuse_rest(READER, _KNOWN, _REFUSED)
    return found


def _keys(parser: OptionParser) -> dict[str, Any]:
    text = parser.filled(READER + "privateKeyPath", "privateKeyPath")
    if text is None:
        return {}
    option = parser.name_of(READER + "privateKeyPath")
    if "data:" in text or "-----BEGIN" in text:
        raise InvalidOption(
            option, "must name a file, not hold the key: Spark shows it in its plans"
        )
    paths = key_paths(option, text)
    return {"private_key" if isinstance(paths, str) else "private_keys": paths}


def _batch(parser: OptionParser) -> dict[str, Any]:
    push_down = parser.flag("pushdown", default=False)
    slack_s = parser.seconds("publishTimeSlackMs")
    if slack_s is not None and not push_down:
        raise parser.fault("publishTimeSlackMs", "needs pushdown=true")
    return {
        "max_records_per_partition": parser.whole("maxRecordsPerPartition", least=1),
        "push_down": push_down,
        "publish_time_slack_s": slack_s,
    }


def _stream(parser: OptionParser) -> dict[str, Any]:
    anchor = parser.flag("anchor", default=True)
    optional = {
        "anchor": anchor,
        "subscription_name": parser.filled("subscriptionName", "predefinedSubscription"),
        "subscription_prefix": parser.filled("subscriptionPrefix", "groupIdPrefix"),
        "max_messages_per_trigger": parser.whole(
            "maxMessagesPerTrigger", "maxOffsetsPerTrigger", least=1
        ),
        "max_bytes_per_trigger": parser.size("maxBytesPerTrigger"),
        "min_messages_per_trigger": parser.whole(
            "minMessagesPerTrigger", "minOffsetsPerTrigger", least=1
        ),
        "max_trigger_delay_s": parser.seconds("maxTriggerDelay", least_ms=1),
        "discovery_interval_s": parser.seconds("discoveryIntervalMs", least_ms=1),
    }
    for name in ("subscription_name", "subscription_prefix"):
        if optional[name] is not None and not anchor:
            option = "subscriptionName" if name == "subscription_name" else "subscriptionPrefix"
            raise parser.fault(option, "needs anchor=true")
    most, least = optional["max_messages_per_trigger"], optional["min_messages_per_trigger"]
    if isinstance(most, int) and isinstance(least, int) and least > most:
        raise parser.fault(
            "minMessagesPerTrigger", f"is more than {parser.name_of('maxMessagesPerTrigger')}"
        )
    return _told(optional)


def _told(optional: dict[str, Any]) -> dict[str, Any]:
    """Without options that the user didn't give."""
    return {name: value for name, value in optional.items() if value is not None}
