"""Messages of `__change_events` as Java writes them, and what is no such message."""

from __future__ import annotations

import hashlib
import io

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.change_events.alien import UnsafeSchema, values_per_byte
from geminga_broker.change_events.avro_schema import EVENT, EVENT_TEXT
from geminga_broker.change_events.codec import (
    BadEvent,
    PolicyEvent,
    decode,
    deletion,
    encode,
    key_of,
    out_of_range,
    weight,
)
from geminga_broker.cluster.records import JsonObject
from geminga_protocol.topic_name import TopicName

T = TopicName.parse("persistent://public/default/t")
BY_JAVA = bytes.fromhex(
    "020402000002021470657273697374656e74020e64656661756c7402000200000000000000000000000200"
    "0000000206000000000000000000020e0a000000000002000200020c7075626c6963020274"
)
"""Written by Apache's class PulsarEvent with retention and the number of producers."""
RECORD: JsonObject = {
    "maxProducerPerTopic": 3,
    "retentionPolicies": {"retentionSizeInMB": 7, "retentionTimeInMinutes": 5},
}


def test_the_schema_is_apaches_to_the_byte() -> None:
    digest = hashlib.sha256(EVENT_TEXT).hexdigest()
    assert digest == "af67ec87115de71f3c556a74a8103fb1c89c1b27b17c53764b01ce5b094d47c2"


def test_what_java_writes_is_read_and_written_the_same() -> None:
    assert decode(BY_JAVA) == PolicyEvent(str(T), False, RECORD)
    ours = encode(T, RECORD, is_global=False, cluster="c")
    # Beside that, the event names the cluster for which it is.
    assert ours == BY_JAVA.replace(b"\x02\x04\x02\x00\x00", b"\x02\x04\x02\x00\x02\x02\x02c\x00", 1)
    assert decode(ours) == decode(BY_JAVA)


def test_policies_of_all_clusters() -> None:
    found = decode(encode(T, RECORD, is_global=True, cluster="c"))
    assert found == PolicyEvent(str(T), True, RECORD)
    assert deletion(key_of(T, is_global=True)) == PolicyEvent(str(T), True, None)
    assert deletion(key_of(T, is_global=False)) == PolicyEvent(str(T), False, None)


def test_what_does_not_fit_is_left_out() -> None:
    record: JsonObject = {
        "messageTTLInSeconds": "soon",
        "maxMessageSize": 1 << 31,
        "compactionThreshold": True,
        "subscriptionTypesEnabled": ["Unheard of"],
        "dispatchRate": {"dispatchThrottlingRateInMsg": 4, "x": 1},
        "subscriptionDispatchRate": {"relativeToPublishRate": True},
        "unknown": 1,
        "persistence": [],
    }
    event = decode(encode(T, record, is_global=False, cluster="c"))
    assert event is not None
    rate = {
        "dispatchThrottlingRateInMsg": 4,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 0,
    }
    of_subscriptions = rate | {"dispatchThrottlingRateInMsg": 0, "relativeToPublishRate": True}
    assert event.record == {
        "maxMessageSize": (1 << 31) - 1,
        "dispatchRate": rate,
        "subscriptionDispatchRate": of_subscriptions,
    }


def written(event: JsonObject) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(msgspec.json.decode(EVENT_TEXT)), event)
    return out.getvalue()


ABOUT: JsonObject = {"domain": "persistent", "tenant": "a", "namespace": "b", "topic": "t"}


def event_of(**fields: object) -> JsonObject:
    about = {**ABOUT, "policies": {"isGlobal": False, "maxMessageSize": 5}}
    return {
        "actionType": "UPDATE",
        "eventType": "TOPIC_POLICY",
        "topicPoliciesEvent": about,
        **fields,
    }


def test_other_actions_and_events() -> None:
    topic, record = "persistent://a/b/t", {"maxMessageSize": 5}
    assert decode(written(event_of())) == PolicyEvent(topic, False, record)
    inserted = PolicyEvent(topic, False, record, only_new=True)
    assert decode(written(event_of(actionType="INSERT"))) == inserted
    assert decode(written(event_of(actionType="DELETE"))) == PolicyEvent(topic, False, None)
    assert decode(written(event_of(actionType="NONE"))) is None
    assert decode(written(event_of(eventType="TRANSACTION_BUFFER_SNAPSHOT"))) is None


@pytest.mark.parametrize(
    "about",
    [None, ABOUT, ABOUT | {"topic": None, "policies": {}}, ABOUT | {"domain": "x", "policies": {}}],
)
def test_events_without_a_topic_or_policies(about: JsonObject | None) -> None:
    with pytest.raises(BadEvent):
        decode(written(event_of(topicPoliciesEvent=about)))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_a_bad_one(data: bytes) -> None:
    for payload in (data, BY_JAVA[: len(data)], BY_JAVA[: len(data)] + data):
        try:
            decode(payload)
        except BadEvent:
            pass


RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
DEEP: object = "int"
for _ in range(100):
    DEEP = {"type": "array", "items": DEEP}
DOUBLING: JsonObject = {"type": "record", "name": "R0", "fields": []}
"""Of no bytes, two to the 40th values."""
for _number in range(1, 41):
    DOUBLING = {
        "type": "record",
        "name": f"R{_number}",
        "fields": [{"name": "a", "type": DOUBLING}, {"name": "b", "type": f"R{_number - 1}"}],
    }


@pytest.mark.parametrize(
    "schema",
    [
        RECURSIVE,
        {"type": "record", "name": "a.R", "fields": [{"name": "r", "type": ["null", "a.R"]}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "record", "name": "E", "fields": [{"name": "x", "type": "Unknown"}]},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": -1}},
        DEEP,
        DOUBLING,
        5,
        {"type": "record", "fields": []},
    ],
)
def test_schemas_that_nothing_is_read_by(schema: object) -> None:
    with pytest.raises(UnsafeSchema):
        values_per_byte(schema)
    with pytest.raises(BadEvent):
        decode(BY_JAVA, msgspec.json.encode(schema))


def test_a_message_may_become_so_much() -> None:
    """A byte of a list may become a record of many values that take none."""
    fields = [{"name": "b", "type": "boolean"}]
    fields += [{"name": f"n{number}", "type": "null"} for number in range(999)]
    item = {"type": "record", "name": "R", "fields": fields}
    schema = {"type": "record", "name": "E", "fields": [{"name": "a", "type": _array(item)}]}
    text = msgspec.json.encode(schema)
    assert weight(bytes(40), text) >= 40_000
    with pytest.raises(BadEvent, match="too many"):
        weight(bytes(100), text)
    assert weight(bytes(1000)) < 10_000
    with pytest.raises(BadEvent, match="too many"):
        weight(bytes(50_000))


def _array(items: object) -> JsonObject:
    return {"type": "array", "items": items}


def test_numbers_beyond_their_type_become_the_nearest() -> None:
    """Retention for 5000 years must not become none."""
    minutes = 5000 * 365 * 24 * 60
    record: JsonObject = {
        "retentionPolicies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1},
        "maxProducerPerTopic": 3,
    }
    assert out_of_range(record) == f"retentionPolicies.retentionTimeInMinutes: number {minutes}"
    event = decode(encode(T, record, is_global=False, cluster="c"))
    assert event is not None
    assert event.record == {
        "retentionPolicies": {"retentionTimeInMinutes": (1 << 31) - 1, "retentionSizeInMB": -1},
        "maxProducerPerTopic": 3,
    }
    assert out_of_range(event.record) is None
    assert out_of_range({"maxProducerPerTopic": -(1 << 40)}) is not None


def test_schemas_of_other_versions_are_read_by() -> None:
    assert values_per_byte(EVENT) < 10
    fields = [
        {"name": "eventType", "type": "string"},
        {"name": "actionType", "type": "string"},
        {
            "name": "topicPoliciesEvent",
            "type": {
                "type": "record",
                "name": "About",
                "fields": [
                    *({"name": name, "type": "string"} for name in ABOUT),
                    {"name": "policies", "type": {"type": "map", "values": "int"}},
                ],
            },
        },
    ]
    schema = {"type": "record", "name": "Event", "fields": fields}
    out = io.BytesIO()
    about = {**ABOUT, "policies": {"maxMessageSize": 5}}
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(schema), event_of(topicPoliciesEvent=about)
    )
    found = decode(out.getvalue(), msgspec.json.encode(schema))
    assert found == PolicyEvent("persistent://a/b/t", False, {"maxMessageSize": 5})
