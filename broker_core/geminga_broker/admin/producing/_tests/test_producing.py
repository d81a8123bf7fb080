"""Messages over REST: their bytes, their answers, and who may send them."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.namespaces._tests.test_kept import Admin, admin
from geminga_broker.admin.producing.encoding import Unencodable, encoder_of
from geminga_broker.log.api import ManagedLedger
from geminga_broker.schema.model import SchemaData
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_protocol.payload import parse_metadata, split, strip_broker_entry_metadata
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName

D = "/admin/v2/persistent/public/default"
TOPIC = "persistent://public/default/t"
POST = "/topics/persistent/public/default/t"
RECORD = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (SchemaType.STRING, "é", "é".encode()),
        (SchemaType.BOOLEAN, "TRUE", b"\1"),
        (SchemaType.INT8, "-1", b"\xff"),
        (SchemaType.INT32, "258", b"\0\0\1\2"),
        (SchemaType.INT64, "1", struct.pack(">q", 1)),
        (SchemaType.DOUBLE, "1.5", struct.pack(">d", 1.5)),
        (SchemaType.LOCAL_DATE, "1970-01-03", struct.pack(">q", 2)),
        (SchemaType.INSTANT, "1970-01-01T00:00:01.5Z", struct.pack(">qi", 1, 500_000_000)),
        (SchemaType.JSON, '{"a": 1}', b'{"a":1}'),
        (
            SchemaType.JSON,
            '[1e3, 0.1, 123456789012345678901234, "\\u00e9/"]',
            '[1000.0,0.1,123456789012345678901234,"é/"]'.encode(),
        ),
        (SchemaType.AVRO, '{"a": 1}', b"\2"),
    ],
)
def test_bytes_of_a_text(kind: SchemaType, text: str, expected: bytes) -> None:
    assert encoder_of(SchemaData(kind, RECORD))(text) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SchemaType.INT8, "200"),
        (SchemaType.INT32, "x"),
        (SchemaType.JSON, "{"),
        (SchemaType.JSON, "NaN"),
        (SchemaType.JSON, "1e999"),
        (SchemaType.AVRO, '{"a": "x"}'),
        (SchemaType.AVRO, "[]"),
        (SchemaType.STRING, None),
        (SchemaType.PROTOBUF_NATIVE, "x"),
    ],
)
def test_a_text_that_is_no_value(kind: SchemaType, text: str | None) -> None:
    with pytest.raises(Unencodable):
        encoder_of(SchemaData(kind, RECORD))(text)


def _body(*payloads: str | None, **others: object) -> dict[str, object]:
    return {"messages": [{"payload": each} for each in payloads], **others}


def _schema(kind: str, data: bytes = b"") -> str:
    fields = {"name": "n", "type": kind, "schema": base64.b64encode(data).decode()}
    return json.dumps({**fields, "properties": {}})


def _log(at: Admin) -> ManagedLedger:
    topic = at.service.topics.loaded[TOPIC]
    assert isinstance(topic, PersistentTopic)
    return topic.log


async def test_messages_are_stored_in_order() -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        message = {
            "payload": "b", "key": "k", "properties": {"p": "q"}, "eventTime": "7",
            "sequenceId": 3, "disableReplication": True,
        }  # fmt: skip
        given = {"producerName": "me", "messages": [{"payload": "a"}, message]}
        status, told = await at.ask("POST", POST, given)
        assert status == 200
        assert isinstance(told, dict)
        results = told["messagePublishResults"]
        assert [each["errorCode"] for each in results] == [0, 0]
        entries = await _log(at).read_range(EARLIEST, entries_max=9, bytes_max=1 << 20)
        ids = [f"{e.position.ledger_id}:{e.position.entry_id}:-1" for e in entries]
        assert [each["messageId"] for each in results] == ids
        bare = [strip_broker_entry_metadata(memoryview(each.data)) for each in entries]
        assert [bytes(split(each).payload) for each in bare] == [b"a", b"b"]
        metadata = parse_metadata(bare[1])
        assert (metadata.producer_name, metadata.partition_key) == ("me", "k")
        assert (metadata.event_time, metadata.sequence_id) == (7, 3)
        assert list(metadata.replicate_to) == ["__local__"]
        assert {each.key: each.value for each in metadata.properties} == {"p": "q"}


async def test_a_bad_message_leaves_the_others() -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        body = _body("1", "x", "2", valueSchema=_schema("INT32"))
        status, told = await at.ask("POST", POST, body)
        assert status == 200
        assert isinstance(told, dict)
        codes = [each["errorCode"] for each in told["messagePublishResults"]]
        assert codes == [0, 2, 0]
        assert len(await _log(at).read_range(EARLIEST, entries_max=9, bytes_max=1 << 20)) == 2


async def test_partitions_take_turns() -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t/partitions", 2)
        for number in range(2):
            part = TopicName.parse(TOPIC).partition(number)
            await at.service.topics.get(part, create=True)
        _, told = await at.ask("POST", POST, _body("a", "b", "c"))
        assert isinstance(told, dict)
        ids = [each["messageId"].rpartition(":")[2] for each in told["messagePublishResults"]]
        assert ids == ["0", "1", "0"]
        _, told = await at.ask("POST", POST + "/partitions/1", _body("d"))
        assert isinstance(told, dict)
        (only,) = told["messagePublishResults"]
        assert only["messageId"].endswith(":1")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (None, 400),
        ({}, 400),
        ({"messages": [None]}, 400),
        (_body(*["x"] * 10_001), 413),
        (_body("a", valueSchema="{"), 500),
        (_body("a", valueSchema=_schema("WHAT")), 500),
        (_body("a", schemaVersion=9), 500),
    ],
)
@pytest.mark.slow
async def test_requests_that_are_refused(body: object, status: int) -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        assert (await at.ask("POST", POST, body))[0] == status
        assert not await _log(at).read_range(EARLIEST, entries_max=9, bytes_max=1 << 20)


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ({"sequenceId": -1}, 0),
        ({"eventTime": "-5"}, 0),
        ({"eventTime": "9" * 30}, 2),
        ({"eventTime": "1_0"}, 2),
        ({"deliverAt": 2**63 - 1}, 0),
        ({"deliverAfterMs": 2**63 - 1}, 2),
        ({"replicationClusters": [None]}, 0),
        ({"properties": {"a": None}}, 0),
    ],
)
async def test_odd_members(odd: dict[str, object], code: int) -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        status, told = await at.ask("POST", POST, {"messages": [{"payload": "x", **odd}]})
        assert status == 200
        assert isinstance(told, dict)
        assert [each["errorCode"] for each in told["messagePublishResults"]] == [code]


async def test_odd_schemas() -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        letters = json.dumps({"name": "n", "type": "STRING", "schema": "\u00e9"})
        status, told = await at.ask("POST", POST, _body("a", valueSchema=letters))
        assert (status, "no base64" in str(told)) == (500, True)
        nothing = json.dumps({"name": None, "type": "STRING", "properties": {"a": None}})
        assert (await at.ask("POST", POST, _body("a", valueSchema=nothing)))[0] == 200


async def test_no_topic_is_made() -> None:
    async with admin() as at:
        text = f"Fail to publish message: Topic {TOPIC} not found"
        assert await at.ask("POST", POST, _body("a")) == (500, {"reason": text})
        assert TOPIC not in at.service.topics.loaded


async def test_a_terminated_topic_takes_none() -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        await at.done("POST", D + "/t/terminate")
        status, told = await at.ask("POST", POST, _body("a"))
        assert status == 200
        assert isinstance(told, dict)
        (only,) = told["messagePublishResults"]
        assert (only["errorCode"], "terminated" in only["errorMsg"]) == (2, True)


async def test_only_producers_send() -> None:
    async with secured() as (_, app):
        assert (await call(app, "PUT", "/admin/v2/persistent/t/n/a", "tadmin")).status == 204
        path, body = "/topics/persistent/t/n/a", _body("a")
        for role, status in (("prod", 200), ("cons", 401), ("nobody", 401), (None, 401)):
            assert (await call(app, "POST", path, role, body=body)).status == status, role


async def test_without_a_schema_the_topic_gets_none() -> None:
    async with admin() as at:
        assert (await at.ask("PUT", f"{D}/t"))[0] == 204
        status, answer = await at.ask("POST", POST, _body("é"), query="withoutSchema=true")
        assert status == 200
        assert answer["messagePublishResults"][0]["errorCode"] == 0
        assert answer["schemaVersion"] is None
        assert (await at.ask("GET", "/admin/v2/schemas/public/default/t/schema"))[0] == 404
        [entry] = await _log(at).read_range(EARLIEST, entries_max=1, bytes_max=1000)
        parts = split(strip_broker_entry_metadata(entry.data))
        assert bytes(parts.payload) == "é".encode()
        assert not parse_metadata(strip_broker_entry_metadata(entry.data)).HasField(
            "schema_version"
        )
