"""Options of reading: each is checked, none is ignored, and none that is secret is shown."""

from __future__ import annotations

import base64
import json
import pickle
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import geminga
from pyspark_pulsar._options import (
    AtTime,
    Bound,
    Edge,
    ParseMode,
    ReadOptions,
    parse_read,
)
from pyspark_pulsar._positions import Position
from pyspark_pulsar.errors import InvalidOption

LEAST = {"service.url": "pulsar://broker:6650", "topic": "t"}
CLIENT, READER = "pulsar.client.", "pulsar.reader."


def batch(**options: str) -> ReadOptions:
    return parse_read({**LEAST, **options}, streaming=False)


def stream(**options: str) -> ReadOptions:
    return parse_read({**LEAST, **options}, streaming=True)


def refused(options: dict[str, str], *, streaming: bool | None = False) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        parse_read(options, streaming=streaming)
    return caught.value


def test_defaults() -> None:
    found = batch()
    assert found.topics.names == ("t",)
    assert found.start == Bound("startingOffsets", Edge.EARLIEST)
    assert found.end == Bound("endingOffsets", Edge.LATEST)
    assert stream().start.default is Edge.LATEST
    assert stream().end is None
    assert found.parse_mode is ParseMode.FAILFAST
    assert found.fail_on_data_loss
    assert found.publish_time_slack_s is None


@pytest.mark.parametrize(
    ("option", "value", "name", "wanted"),
    [
        ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
        ("allowDifferentTopicSchemas", "true", "allow_different_topic_schemas", True),
        ("schemaMode", "RAW", "schema_mode", "raw"),
        ("mode", "permissive", "parse_mode", ParseMode.PERMISSIVE),
        ("includeHeaders", "false", "include_properties", False),
        ("includeProperties", "false", "include_properties", False),
        ("pushdown", "true", "push_down", True),
        ("minPartitions", "7", "min_partitions", 7),
        ("maxRecordsPerPartition", "1000", "max_records_per_partition", 1000),
        ("pollTimeoutMs", "2500", "poll_timeout_s", 2.5),
        ("maxRowsPerBatch", "100", "batch_rows_max", 100),
        ("maxBytesPerBatch", "2m", "batch_bytes_max", 2 << 20),
        ("maxMessagesPerSecond", "0.5", "messages_per_second", 0.5),
        ("maxBytesPerSecond", "1e6", "bytes_per_second", 1e6),
        ("readCompacted", "true", "read_compacted", True),
        (READER + "readCompacted", "true", "read_compacted", True),
        (READER + "receiverQueueSize", "5", "receiver_queue_size", 5),
        (READER + "readerName", "r", "reader_name", "r"),
        (READER + "subscriptionRolePrefix", "role", "subscription_role_prefix", "role"),
        (READER + "cryptoFailureAction", "discard", "crypto_failure_action",
         geminga.ConsumerCryptoFailureAction.DISCARD),
        ("privateKeyPath", "/k.pem", "private_key", "/k.pem"),
        (READER + "privateKeyPath", '{"a": "/a.pem"}', "private_keys", (("a", "/a.pem"),)),
    ],
)  # fmt: skip
def test_each_option_of_batches(option: str, value: str, name: str, wanted: object) -> None:
    for spelling in (option, option.lower(), option.upper()):
        assert getattr(batch(**{spelling: value}), name) == wanted


@pytest.mark.parametrize(
    ("option", "value", "name", "wanted"),
    [
        ("anchor", "false", "anchor", False),
        ("subscriptionName", "s", "subscription_name", "s"),
        ("predefinedSubscription", "s", "subscription_name", "s"),
        ("subscriptionPrefix", "p", "subscription_prefix", "p"),
        ("groupIdPrefix", "p", "subscription_prefix", "p"),
        ("maxOffsetsPerTrigger", "10", "max_messages_per_trigger", 10),
        ("maxMessagesPerTrigger", "10", "max_messages_per_trigger", 10),
        ("maxBytesPerTrigger", "64KB", "max_bytes_per_trigger", 65536),
        ("minOffsetsPerTrigger", "3", "min_messages_per_trigger", 3),
        ("maxTriggerDelay", "15m", "max_trigger_delay_s", 900.0),
        ("maxTriggerDelay", "2500", "max_trigger_delay_s", 2.5),
        ("discoveryIntervalMs", "10s", "discovery_interval_s", 10.0),
    ],
)
def test_each_option_of_streams(option: str, value: str, name: str, wanted: object) -> None:
    assert getattr(stream(**{option: value}), name) == wanted
    error = refused({**LEAST, option: value})
    assert error.option == option
    assert "readStream" in str(error)
    # For the schema alone it isn't known which of both it will be.
    parse_read({**LEAST, option: value}, streaming=None)


@pytest.mark.parametrize(
    "option", ["endingOffsets", "endingTime", "pushdown", "maxRecordsPerPartition"]
)
def test_batch_options_are_refused_in_streams(option: str) -> None:
    value = {"endingOffsets": "latest", "pushdown": "true"}.get(option, "5")
    error = refused({**LEAST, option: value}, streaming=True)
    assert (error.option, "batch" in error.reason) == (option, True)
    parse_read({**LEAST, option: value}, streaming=None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failOnDataLoss", "yes"),
        ("mode", "LENIENT"),
        ("schemaMode", "avro"),
        ("pushdown", "maybe"),
        ("publishTimeSlackMs", "5"),
        ("minPartitions", "0"),
        ("minPartitions", "-1"),
        ("minPartitions", "100001"),
        ("minPartitions", "many"),
        ("minPartitions", "1.5"),
        ("minPartitions", "²"),
        ("maxRecordsPerPartition", "0"),
        ("pollTimeoutMs", "0"),
        ("pollTimeoutMs", "1d"),
        ("maxRowsPerBatch", "0"),
        ("maxBytesPerBatch", "10"),
        ("maxBytesPerBatch", "10x"),
        ("maxBytesPerBatch", "2g"),
        ("maxMessagesPerSecond", "0"),
        ("maxMessagesPerSecond", "nan"),
        ("maxBytesPerSecond", "inf"),
        (READER + "receiverQueueSize", "0"),
        (READER + "cryptoFailureAction", "IGNORE"),
        (READER + "privateKeyPath", "{}"),
        (READER + "privateKeyPath", '{"a": 1}'),
        (READER + "startMessageId", "x"),
        (READER + "poolMessages", "true"),
        (READER + "receiverQueSize", "5"),
        ("columnNameOfCorruptRecord", "_bad"),
        ("startingOffsets", "latest"),
        ("startingOffsets", "soon"),
        ("startingOffsets", '{"t": "latest"}'),
        ("startingOffsets", '{"t": 5}'),
        ("startingOffsets", '{"t": "1:2:3:4"}'),
        ("startingOffsets", '{"t": "1:-2"}'),
        ("startingOffsets", '{"t": [300]}'),
        ("startingOffsets", '{"t": [1, 2, 3]}'),
        ("startingOffsets", '{"t": "1:1", "t": "1:2"}'),
        ("startingOffsets", '{"t"'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"t": "earliest"}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingTimestamp", "99999999999999999"),
        ("endingTimestamp", '{"t": true}'),
        ("topic", ""),
        ("topics", "u"),
        ("admin.url", "broker:8080"),
        ("admin.url", "http://user:pass@broker"),
        ("path", "t"),
        (CLIENT + "operationTimeoutMs", "0"),
        (CLIENT + "connectionsPerBroker", "0"),
        (CLIENT + "memoryLimitBytes", "-5"),
        (CLIENT + "tlsProtocols", "SSLv3"),
        (CLIENT + "tlsCertificateFilePath", "/c.pem"),
        (CLIENT + "numIoThreads", "4"),
        (CLIENT + "useKeyStoreTls", "true"),
        (CLIENT + "operationTimoutMs", "4"),
        (CLIENT + "authParams", "secret"),
    ],
)
def test_each_fault_names_its_option(option: str, value: str) -> None:
    error = refused({**LEAST, option: value})
    assert error.option == option
    assert error.option in str(error)


@pytest.mark.parametrize(
    "option",
    ["minPartitions", "maxBytesPerTrigger", CLIENT + "numIoThreads", READER + "startMessageId"],
)
def test_errors_show_names_as_documented(option: str) -> None:
    """Spark hands all names on in lower case."""
    assert refused({**LEAST, option.lower(): "x"}).option == option


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("failOnDataloss2", "failOnDataLoss"),
        ("service.uri", "service.url"),
        ("operationTimeoutMs", CLIENT + "operationTimeoutMs"),
        ("maxBytesPerTriger", "maxBytesPerTrigger"),
        (READER + "receiverQueSize", READER + "receiverQueueSize"),
        (CLIENT + "operationTimoutMs", CLIENT + "operationTimeoutMs"),
    ],
)
def test_unknown_options_name_the_nearest(wrong: str, meant: str) -> None:
    error = refused({**LEAST, wrong: "1"})
    assert error.option == wrong
    assert f"did you mean {meant}?" in error.reason


@pytest.mark.parametrize("wrong", ["banana", "kafka.host", "header", READER + "colour"])
def test_dissimilar_names_are_not_suggested(wrong: str) -> None:
    error = refused({**LEAST, wrong: "1"})
    assert error.reason == "is unknown; docs/spark.md lists all under Options"


def test_spaces_around_values_mean_nothing() -> None:
    given = {
        "topic": " t ", "startingOffsets": " earliest ", "mode": " permissive ",
        "minPartitions": " 2 ", "failOnDataLoss": " TRUE ", "schemaMode": " raw ",
        "service.url": " pulsar://h ", "admin.url": " http://h:80 ", "maxBytesPerBatch": " 1m ",
    }  # fmt: skip
    plain = {name: value.strip() for name, value in given.items()}
    assert parse_read(given, streaming=False) == parse_read(plain, streaming=False)


def test_slack_of_times() -> None:
    for value, slack_s in (("1500", 1.5), ("0", 0.0), ("10m", 600.0)):
        assert batch(pushdown="true", publishTimeSlackMs=value).publish_time_slack_s == slack_s


@pytest.mark.parametrize("option", ["predefinedSubscription", "subscriptionPrefix"])
def test_a_subscription_needs_the_anchor(option: str) -> None:
    error = refused({**LEAST, "anchor": "false", option: "s"}, streaming=True)
    assert error.option == option


def test_limits_of_a_trigger_must_fit() -> None:
    limits = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}
    assert refused({**LEAST, **limits}, streaming=True).option == "minOffsetsPerTrigger"


def test_required_options() -> None:
    assert refused({"topic": "t"}).option == "service.url"
    assert refused({"service.url": "pulsar://h"}).option == "topic"


@pytest.mark.parametrize("name", ["service.url", "serviceUrl", "SERVICEURL", CLIENT + "serviceUrl"])
def test_names_of_the_service_url(name: str) -> None:
    assert parse_read({name: "pulsar://h", "topic": "t"}, streaming=False).client.service_url == (
        "pulsar://h"
    )


def test_two_names_of_one_option_must_agree() -> None:
    assert batch(serviceUrl=LEAST["service.url"]).client.service_url == LEAST["service.url"]
    error = refused({**LEAST, "serviceUrl": "pulsar://other"})
    assert error.option == "serviceUrl"
    assert "service.url" in error.reason


def test_topics() -> None:
    assert parse_read(
        {"service.url": "pulsar://h", "topics": "a, b,a"}, streaming=False
    ).topics.names == (
        "a",
        "b",
    )
    found = parse_read(
        {"service.url": "pulsar://h", "subscribePattern": "a.*"}, streaming=False
    ).topics
    assert (found.pattern, found.option) == ("a.*", "subscribePattern")
    base = {"service.url": "pulsar://h"}
    assert refused({**base, "topicsPattern": "("}).option == "topicsPattern"
    assert refused({**base, "topics": "a,,b"}).option == "topics"
    assert refused({**base, "topics": "a", "topicsPattern": "a"}).option == "topicsPattern"


def _json(topic: object) -> str:
    return json.dumps({"t": topic})


@settings(deadline=None)
@given(
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 62),
    st.integers(-1, (1 << 31) - 1),
    st.integers(-1, 1000),
)
def test_ids_in_all_forms(ledger: int, entry: int, index: int, partition: int) -> None:
    place = Position(ledger, entry, index)
    data = geminga.MessageId(ledger, entry, partition, index).serialize()
    forms = [
        str(place),
        list(data),
        [each - 256 if each > 127 else each for each in data],
        base64.b64encode(data).decode(),
    ]
    for form in forms:
        found = batch(startingOffsets=_json(form)).start
        assert found == Bound("startingOffsets", Edge.EARLIEST, (("t", place),))


def test_ids_that_mean_the_ends() -> None:
    for form, edge in (
        ("EARLIEST", Edge.EARLIEST),
        ("-1:-1", Edge.EARLIEST),
        (list(geminga.LATEST.serialize()), Edge.LATEST),
    ):
        assert stream(startingOffsets=_json(form)).start.per_topic == (("t", edge),)


@pytest.mark.parametrize(
    "name", ["startingTimestamp", "startingTime", "startingOffsetsByTimestamp"]
)
def test_times(name: str) -> None:
    assert batch(**{name: "17"}).start == Bound(name, AtTime(17))
    found = batch(**{name: '{"t": 17, "u": "18"}'}).start
    assert found == Bound(name, Edge.EARLIEST, (("t", AtTime(17)), ("u", AtTime(18))))
    assert refused({**LEAST, name: "17", "startingOffsets": "earliest"}).option == name


def test_options_pickle_and_settings_hash() -> None:
    found = batch(startingOffsets=_json("1:2:3"), minPartitions="3")
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found.client) == hash(batch().client)
    assert found.client != batch(**{CLIENT + "listenerName": "x"}).client


def test_errors_pickle() -> None:
    error = refused({**LEAST, "minPartitions": "x"})
    again = pickle.loads(pickle.dumps(error))
    assert (again.option, again.reason, str(again)) == (error.option, error.reason, str(error))


# Hypothesis also draws texts that stand in the modules which this process has imported, names of
# options among them: no option ends with a section sign.
OTHER_NAMES = st.text(max_size=20).map(lambda text: f"{text}§")


@settings(deadline=None)
@given(st.dictionaries(OTHER_NAMES, st.text(max_size=20), max_size=4), st.booleans())
@example({"startingOffsets§": "earliest"}, False)
def test_any_other_value_is_refused_by_name(options: dict[str, str], streaming: bool) -> None:
    named = {name for name in options if re.sub(r"\W", "", name)}
    if named:
        error = refused({**LEAST, **{name: options[name] for name in named}}, streaming=streaming)
        assert error.option in named
