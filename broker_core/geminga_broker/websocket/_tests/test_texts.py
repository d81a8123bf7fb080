"""Paths, parameters and JSON of the WebSocket API, as an Apache broker was seen to take them (spec
PX-09).
"""

from __future__ import annotations

import base64
import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import geminga
from geminga_broker.websocket import messages
from geminga_broker.websocket.errors import BadCommand, BadMessage, BadParameter, Refused, refusal
from geminga_broker.websocket.parameters import (
    consumer_options,
    parse_path,
    producer_options,
    read_message_id,
    reader_options,
)
from geminga_protocol.message_id import MessageId

BASE = "/ws/v2/producer/persistent/public/default"


def test_paths() -> None:
    found = parse_path(f"{BASE}/t")
    assert (found.kind, str(found.topic)) == ("producer", "persistent://public/default/t")
    found = parse_path("/ws/v2/consumer/non-persistent/a/b/c%20d/s%2F1")
    assert str(found.topic) == "non-persistent://a/b/c d"
    assert found.subscription == "s/1"
    assert parse_path("/ws/v2/reader/persistent/a/b/c").kind == "reader"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ws/v2/nothing/persistent/a/b/c", 404),
        ("/ws/producer/persistent/a/b/c", 404),
        ("/other", 404),
        ("/ws/v2/producer/persistent/a/b", 400),
        ("/ws/v2/producer/bogus/a/b/c", 400),
        ("/ws/v2/consumer/persistent/a/b/c", 400),
        ("/ws/v2/consumer/persistent/a/b/c/", 400),
        ("/ws/v2/consumer/persistent/a/b/c/d/e", 400),
        ("/ws/v2/producer/persistent/a/b/", 400),
    ],
)
def test_paths_that_are_refused(path: str, status: int) -> None:
    with pytest.raises(Refused) as refused:
        parse_path(path)
    assert refused.value.status == status


@given(st.text(alphabet="/abw-s%v2persitn0", max_size=60))
def test_any_path_parses_or_is_refused(text: str) -> None:
    try:
        parse_path("/ws/v2/" + text)
    except Refused:
        pass


def test_producer_parameters() -> None:
    assert producer_options({}) == {
        "batching_enabled": False,
        "routing_mode": geminga.RoutingMode.SINGLE_PARTITION,
    }
    query = {
        "producerName": "p", "initialSequenceId": "7", "hashingScheme": "Murmur3_32Hash",
        "sendTimeoutMillis": "1500", "batchingEnabled": "True", "batchingMaxMessages": "9",
        "maxPendingMessages": "11", "batchingMaxPublishDelay": "20", "compressionType": "ZSTD",
        "messageRoutingMode": "RoundRobinPartition",
    }  # fmt: skip
    assert producer_options(query) == {
        "producer_name": "p",
        "initial_sequence_id": 7,
        "hashing_scheme": geminga.HashingScheme.MURMUR3_32,
        "send_timeout_s": 1.5,
        "batching_enabled": True,
        "batching_max_messages": 9,
        "max_pending_messages": 11,
        "batching_max_publish_delay_s": 0.02,
        "compression_type": geminga.CompressionType.ZSTD,
        "routing_mode": geminga.RoutingMode.ROUND_ROBIN,
    }
    with pytest.raises(Refused, match="encrypt in the client"):
        producer_options({"encryptionKeys": "k"})


def test_consumer_parameters() -> None:
    found = consumer_options({}, "t", "s")
    assert (found.pending_max, found.pull_mode) == (1000, False)
    query = {
        "ackTimeoutMillis": "2000", "subscriptionType": "Key_Shared", "priorityLevel": "3",
        "subscriptionMode": "NonDurable", "subscriptionInitialPosition": "Earliest",
        "receiverQueueSize": "5000", "consumerName": "c", "negativeAckRedeliveryDelay": "100",
        "maxRedeliverCount": "4", "pullMode": "true", "cryptoFailureAction": "CONSUME",
    }  # fmt: skip
    found = consumer_options(query, "persistent://a/b/c", "s")
    assert (found.pending_max, found.pull_mode) == (0, True)
    assert found.options == {
        "ack_timeout_s": 2.0,
        "consumer_type": geminga.ConsumerType.KEY_SHARED,
        "durable": False,
        "initial_position": geminga.InitialPosition.EARLIEST,
        "receiver_queue_size": 1000,
        "consumer_name": "c",
        "priority_level": 3,
        "negative_ack_redelivery_delay_s": 0.1,
        "dead_letter_policy": geminga.DeadLetterPolicy(
            max_redeliver_count=4, dead_letter_topic="persistent://a/b/c-s-DLQ"
        ),
    }
    shared = {"deadLetterTopic": "d", "subscriptionType": "Shared"}
    named = consumer_options(shared, "t", "s").options["dead_letter_policy"]
    assert named is not None
    assert named.dead_letter_topic == "d"
    for counting in ({}, {"subscriptionType": "Exclusive"}, {"subscriptionType": "Failover"}):
        made = consumer_options({"deadLetterTopic": "d", **counting}, "t", "s")
        assert "dead_letter_policy" not in made.options
    assert consumer_options({"receiverQueueSize": "0"}, "t", "s").pending_max == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sendTimeoutMillis", "abc"), ("sendTimeoutMillis", "-1"), ("sendTimeoutMillis", ""),
        ("compressionType", "FOO"), ("messageRoutingMode", "x"), ("hashingScheme", "x"),
        ("initialSequenceId", "9" * 30), ("batchingMaxMessages", "1.5"), ("ackTimeoutMillis", "10"),
        ("subscriptionType", "shared"), ("subscriptionMode", "x"), ("receiverQueueSize", "-1"),
        ("subscriptionInitialPosition", "x"), ("priorityLevel", "٣"), ("maxRedeliverCount", "0"),
        ("negativeAckRedeliveryDelay", "soon"), ("messageId", "rubbish"), ("messageId", "AAAA"),
    ],
)  # fmt: skip
def test_parameters_that_are_refused(name: str, value: str) -> None:
    def all_of() -> None:
        producer_options({name: value})
        consumer_options({name: value}, "t", "s")
        reader_options({name: value})

    with pytest.raises(BadParameter, match="Invalid query params: "):
        all_of()


def test_reader_parameters() -> None:
    assert reader_options({}).start == geminga.LATEST
    assert reader_options({"messageId": "earliest"}).start == geminga.EARLIEST
    at = MessageId(3, 4, 1, 2, 5)
    text = messages.encode_id(at)
    found = reader_options({"messageId": text, "readerName": "r", "receiverQueueSize": "7"})
    assert (found.start, found.queue_size, found.name) == (at, 7, "r")


def test_messages_to_publish() -> None:
    found = messages.read_publish(
        json.dumps(
            {
                "payload": "aGVsbG8",
                "properties": {"a": "b", "n": 1, "t": True, "f": 1.5},
                "key": "k",
                "context": "c",
                "eventTime": "2026-01-02T03:04:05.678+01:00",
                "deliverAt": 12,
                "deliverAfterMs": 1500,
                "replicationClusters": ["x"],
                "disableReplication": True,
                "unknown": 1,
            }
        )
    )
    assert found.data == b"hello"
    assert found.properties == {"a": "b", "n": "1", "t": "true", "f": "1.5"}
    assert (found.key, found.context) == ("k", "c")
    assert found.event_time_ms == 1767319445678
    assert (found.deliver_at_ms, found.deliver_after) == (12, dt.timedelta(seconds=1.5))
    assert (found.replication_clusters, found.disable_replication) == (["x"], True)


@pytest.mark.parametrize(
    ("text", "code", "context"),
    [
        ("not json", 3, None),
        ("[]", 3, None),
        ("[" * 100_000, 3, None),
        ('{"payload":"eA==","sequenceId":"abc"}', 3, None),
        ('{"context":"c"}', 7, "c"),
        ('{"payload":null,"context":"c"}', 7, "c"),
        ('{"payload":"!!","context":"c"}', 7, "c"),
        ('{"payload":"eA==","eventTime":"rubbish","context":"c"}', 7, "c"),
        ('{"payload":"eA==","eventTime":"2026-01-02T03:04:05","context":"c"}', 7, "c"),
        ('{"payload":"eA==","encryptionParam":"x","context":"c"}', 7, "c"),
    ],
)
def test_messages_that_cannot_be_published(text: str, code: int, context: str | None) -> None:
    with pytest.raises(BadMessage) as bad:
        messages.read_publish(text)
    assert (bad.value.code, bad.value.context) == (code, context)


@given(st.binary(max_size=60))
def test_payloads_come_back(data: bytes) -> None:
    text = json.dumps({"payload": base64.b64encode(data).decode()})
    assert messages.read_publish(text).data == data


def test_answers() -> None:
    # Texts of an Apache broker.
    assert messages.sent(MessageId(5, 0), "c1") == (
        '{"result":"ok","messageId":"CAUQADAA","context":"c1","errorCode":0,"schemaVersion":0}'
    )
    assert messages.not_sent(3, "why", None) == (
        '{"result":"send-error:3","errorMsg":"why","errorCode":0,"schemaVersion":0}'
    )
    assert messages.end_of_topic(False) == '{"endOfTopic":false}'
    assert messages.write_time(1795235489999) == "2026-11-21T04:31:29.999Z"
    assert messages.write_time(1 << 62) == str(1 << 62)


def test_commands() -> None:
    found = messages.read_command('{"messageId":"x"}')
    assert (found.type, found.message_id) == ("", "x")
    assert messages.read_command('{"type":"permit","permitMessages":5}').permits == 5
    for text in ("rubbish", "[]", '{"type":"permit"}', '{"type":"permit","permitMessages":-1}'):
        with pytest.raises(BadCommand):
            messages.read_command(text)
    for text in (None, "", "!!", "eHg="):
        with pytest.raises(BadCommand):
            read_message_id(text, BadCommand)


def test_statuses() -> None:
    for error, status in (
        (geminga.InvalidArgumentError("x"), 400),
        (geminga.AuthorizationError("x"), 403),
        (geminga.TopicNotFoundError("x"), 404),
        (geminga.ConsumerBusyError("x"), 409),
        (geminga.TooManyRequestsError("x"), 429),
        (geminga.TopicTerminatedError("x"), 503),
        (geminga.OperationTimeoutError("x"), 504),
        (geminga.AlreadyClosedError("x"), 500),
    ):
        assert refusal(error, "reader").status == status
